#include <cairn/cairn.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/shape.h"
using namespace cairn;

static_assert(::Shape{3}.sides == 3 && ::Error::consumer != ::Error::none, "these are not the consumer's own headers");

// Groups digits: 1234 is 1'2'3'4.
struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return '\''; }
  std::string do_grouping() const override { return "\1"; }
};

// What is saved can be read, whatever locale the program around the library has set.
void save_and_restore(Linear& model, RAdam& optimizer, const std::filesystem::path& run) {
  std::locale::global(std::locale(std::locale(), new Grouping));
  for (int64_t step : {1000, 2000}) {
    save_checkpoint(run, model, optimizer, {{"step", step}, {"loss", 0.5}});
    const auto found = find_checkpoint(run);
    if (found->about->at("step") != step || found->about->at("loss") != 0.5) std::abort();
    restore(*found, model, &optimizer);
  }
  std::filesystem::remove_all(run);
}

int main() {
  Generator generator(1);
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 8, options.feed_forward = 32;
  options.attention = "i-clustered-3:topk=4";
  Encoder encoder(options, generator);
  Linear output(options.features(), 1, generator);
  RAdam optimizer(parameters({&encoder, &output}), 1e-2);
  RandomStream random(1, 0, Purpose::data);
  const Variable input(random_normal({4, 12, options.features()}, random));
  for (; generator.step() < 20; generator.advance()) {
    const Variable loss = mean(square(output(encoder(input, {}, {.training = true, .generator = &generator})) - 0.5));
    optimizer.clear_gradients(), backward(loss), optimizer.step();
    if (generator.step() % 19 == 0) std::printf("loss %.4f\n", loss.value().item());
  }

  const std::filesystem::path run = std::filesystem::temp_directory_path() / concat("cairn-consumer-", getpid());
  RAdam its_own(parameters({&output}), 1e-2);
  save_and_restore(output, its_own, run);
  if (std::setlocale(LC_ALL, "de_DE.UTF-8")) {
    std::locale::global(std::locale("de_DE.UTF-8"));
    save_and_restore(output, its_own, run);
  } else if (std::getenv("CAIRN_NEEDS_LOCALES")) {
    std::abort();
  }
}
