#include "apps/text_search/model_command.h"

#include "core/error.h"

namespace cairn::text_search {

void expect_model(const std::string& model, const std::string& command) {
  check<UsageError>(!model.empty(), "expected --model with a model's folder; see text-search ", command, " --help");
}

ModelCommand::ModelCommand(CLI::App& app, const char* name, const char* summary, const std::string& footer,
                           int64_t default_batch, const std::string& model_help)
    : command_name(name), command(add_command(app, name, summary, footer)), options(&command), batch(default_batch) {
  add_path(command, "--model", model, "DIR", model_help);
}

void ModelCommand::define_rest(const std::string& batch_help) {
  options.integer("batch", batch, 1, 4096, batch_help);
  common.define(options);
  output.define(command);
}

void ModelCommand::read_options() {
  options.read();
  options.assign();
  catch_interrupts(output.quiet);
}

EmbedderOptions ModelCommand::embedder_options(const std::string& attention) const {
  expect_model(model, command_name);
  return {model, attention, batch, 0, uint64_t(common.seed), common.apply()};
}

}  // namespace cairn::text_search
