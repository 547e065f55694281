#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "core/did_you_mean.h"
#include "nn/attention/attention.h"

namespace cairn {

// ---- the list, in the order of the documentation. `<name>_variant` is defined in the file of its name, or in its
// family's file: full.cpp, position.cpp, euclidean.cpp, patterned.cpp.
#define CAIRN_ATTENTION_VARIANTS(X) \
  X(full)                           \
  X(shared_full)                    \
  X(clustered)                      \
  X(improved_clustered)             \
  X(oracle_top)                     \
  X(position)                       \
  X(improved_position)              \
  X(euclidean)                      \
  X(improved_euclidean)             \
  X(lsh)                            \
  X(local)                          \
  X(longformer)                     \
  X(strided)                        \
  X(inducing)                       \
  X(linear)

#define CAIRN_DECLARE(name) extern const AttentionVariant name##_variant;
CAIRN_ATTENTION_VARIANTS(CAIRN_DECLARE)

static std::vector<const AttentionVariant*>& variants() {
#define CAIRN_LIST(name) &name##_variant,
  static std::vector<const AttentionVariant*> all{CAIRN_ATTENTION_VARIANTS(CAIRN_LIST)};
  return all;
}

const std::vector<const AttentionVariant*>& attention_variants() { return variants(); }

void add_attention_variant(const AttentionVariant& variant) {
  for (const AttentionVariant* other : variants())
    check<UsageError>(std::string(other->name) != variant.name, "there is an attention '", variant.name, "' already");
  variants().push_back(&variant);
}

Tensor AttentionChoices::operator[](const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

AttentionChoices AttentionChoices::to(Device device) const {
  AttentionChoices result = *this;
  for (auto& [name, tensor] : result.tensors)
    if (tensor.defined()) tensor = tensor.to(device);
  return result;
}

void Attention::lengths_only(const AttentionMask& mask, const char* why) const {
  lengths_or_causal_only(mask, why);
  check<UsageError>(!mask.causal, "attention '", spec(), "' cannot honor a causal mask: ", why);
}

void Attention::lengths_or_causal_only(const AttentionMask& mask, const char* why) const {
  check<UsageError>(!mask.allowed.defined(), "attention '", spec(), "' cannot honor a boolean mask: ", why);
  check<UsageError>(mask.pattern.all(), "attention '", spec(), "' cannot honor a patterned mask: ", why);
}

// ---- reading a specification

void SpecReader::fail(const std::string& message) const {
  throw UsageError(
      concat("attention '", spec_.variant->name, spec_.number.empty() ? "" : "-", spec_.number, "': ", message));
}

// Parses a number that is the whole text, in the same way in every locale.
template <class T>
static bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

int64_t SpecReader::number(const char* what) {
  number_asked_ = what;
  int64_t value = 0;
  if (spec_.number.empty()) fail(concat("expected a number of ", what, ", as in ", spec_.variant->name, "-100"));
  if (!parse_number(spec_.number, value))
    fail(concat("expected a whole number of ", what, ", got '", spec_.number, "'"));
  // Labels and indices are int32.
  if (value < 1 || value > std::numeric_limits<int32_t>::max())
    fail(concat(what, " = ", spec_.number, ", expected 1 to 2147483647"));
  return value;
}

const std::string* SpecReader::given(const char* option, const std::string& preset, const char* help) {
  asked_.push_back({option, preset, help});
  if (const auto found = spec_.options.find(option); found != spec_.options.end()) return &found->second;
  if (const auto found = defaults_.find(option); found != defaults_.end()) return &found->second;
  return nullptr;
}

int64_t SpecReader::integer(const char* option, int64_t preset, int64_t minimum, int64_t maximum, const char* help) {
  const std::string* text = given(option, std::to_string(preset), help);
  if (!text) return preset;
  int64_t value = 0;
  if (!parse_number(*text, value)) fail(concat("option ", option, ": expected a whole number, got '", *text, "'"));
  if (value < minimum || value > maximum)
    fail(concat("option ", option, " = ", *text, ", expected ", minimum, " to ", maximum));
  return value;
}

double SpecReader::real(const char* option, double preset, double minimum, double maximum, const char* help) {
  const std::string* text = given(option, concat(preset), help);
  if (!text) return preset;
  double value = 0;
  if (!parse_number(*text, value) || !std::isfinite(value))
    fail(concat("option ", option, ": expected a finite number, got '", *text, "'"));
  if (value < minimum || value > maximum)
    fail(concat("option ", option, " = ", *text, ", expected ", minimum, " to ", maximum));
  return value;
}

bool SpecReader::flag(const char* option, bool preset, const char* help) {
  const std::string* text = given(option, preset ? "true" : "false", help);
  if (!text) return preset;
  if (*text == "true") return true;
  if (*text != "false") fail(concat("option ", option, ": expected true or false, got '", *text, "'"));
  return false;
}

void SpecReader::without(const char* option, const char* why) {
  if (spec_.options.count(option)) fail(concat("there is no option ", option, ": ", why));
  std::erase_if(asked_, [=](const Option& asked) { return asked.name == option; });
}

std::string SpecReader::choice(const char* option, const char* preset, const std::vector<std::string>& words,
                               const char* help) {
  const std::string* text = given(option, preset, help);
  if (!text) return preset;
  std::string listed;
  for (const std::string& word : words) {
    if (*text == word) return word;
    listed += (listed.empty() ? "" : " or ") + word;
  }
  fail(concat("option ", option, ": expected ", listed, ", got '", *text, "'", did_you_mean(*text, words)));
}

void SpecReader::finish() const {
  if (!spec_.number.empty() && number_asked_.empty()) fail(concat(spec_.variant->name, " takes no number"));
  std::vector<std::string> known;
  std::string listed;
  for (const Option& option : asked_) {
    known.push_back(option.name);
    listed += (listed.empty() ? "" : ", ") + option.name;
  }
  for (const auto& [name, value] : spec_.options)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(concat("unknown option '", name, "'", did_you_mean(name, known), "; it has ",
                  listed.empty() ? "none" : listed));
}

namespace {

// The variant of a specification's head, which is a name or "name-number". The longest name that fits counts.
const AttentionVariant* find_variant(const std::string& head) {
  const AttentionVariant* best = nullptr;
  for (const AttentionVariant* variant : attention_variants()) {
    const std::string name = variant->name;
    const bool fits = head == name || head.rfind(name + "-", 0) == 0;
    if (fits && (!best || name.size() > std::string(best->name).size())) best = variant;
  }
  return best;
}

[[noreturn]] void unknown_variant(const std::string& head) {
  // The head without its number, to find a similar name.
  std::string word = head, number;
  if (const size_t dash = head.rfind('-'); dash != std::string::npos && dash + 1 < head.size() &&
                                           head.find_first_not_of("0123456789", dash + 1) == std::string::npos)
    word = head.substr(0, dash), number = head.substr(dash);
  std::vector<std::string> names;
  std::string listed;
  for (const AttentionVariant* variant : attention_variants()) {
    names.push_back(variant->name);
    listed += (listed.empty() ? "" : ", ") + names.back();
  }
  const std::string close = nearest(word, names);
  const std::string suggestion = close.empty() ? "" : " (did you mean '" + close + number + "'?)";
  throw UsageError("unknown attention '" + head + "'" + suggestion + "; the variants are " + listed);
}

}  // namespace

AttentionSpec parse_attention(const std::string& spec) {
  const size_t colon = spec.find(':');
  const std::string head = spec.substr(0, colon);
  AttentionSpec result;
  result.variant = find_variant(head);
  if (!result.variant) unknown_variant(head);
  const size_t name_size = std::string(result.variant->name).size();
  if (head.size() > name_size) {
    result.number = head.substr(name_size + 1);
    check<UsageError>(!result.number.empty(), "attention '", head, "': expected a number after the dash");
  }
  if (colon == std::string::npos) return result;

  check<UsageError>(spec.size() > colon + 1 && spec.back() != ',', "attention '", spec,
                    "': expected option=value after the colon");
  for (size_t begin = colon + 1, end; begin < spec.size(); begin = end + 1) {
    end = std::min(spec.find(',', begin), spec.size());
    const std::string item = spec.substr(begin, end - begin);
    const size_t equals = item.find('=');
    check<UsageError>(equals != std::string::npos && equals > 0, "attention '", spec, "': expected option=value, got '",
                      item, "'");
    const bool is_new = result.options.emplace(item.substr(0, equals), item.substr(equals + 1)).second;
    check<UsageError>(is_new, "attention '", spec, "': option '", item.substr(0, equals), "' is given twice");
  }
  return result;
}

std::unique_ptr<Attention> make_attention(const std::string& spec, const std::map<std::string, std::string>& defaults) {
  const AttentionSpec parsed = parse_attention(spec);
  SpecReader reader(parsed, defaults);
  const double scale = reader.real("scale", 0, 0, 1e6, "factor of the scores, 0: 1/sqrt(head size)");
  std::unique_ptr<Attention> attention = parsed.variant->make(reader);
  reader.finish();
  attention->spec_ = spec;
  attention->scale_ = scale;
  return attention;
}

std::string full_attention_note(const Attention& attention, int64_t queries, int64_t keys) {
  const std::string why = attention.full_because(queries, keys);
  if (why.empty()) return "";
  return concat(attention.spec(), " computes full attention here, because ", why,
                "; its results say nothing about smaller numbers");
}

std::string describe_attention_variants() {
  std::string text = "  all except linear\n      :scale=0  factor of the scores; 0: 1/sqrt(head size)\n";
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader({variant, "100", {}});
    variant->make(reader);
    text += concat("  ", variant->name);
    if (!reader.number_asked().empty()) text += concat("-<", reader.number_asked(), ">");
    text += concat("  ", variant->summary, '\n');
    for (const auto& option : reader.asked())
      text += concat("      :", option.name, '=', option.preset, "  ", option.help, '\n');
  }
  return text;
}

}  // namespace cairn
