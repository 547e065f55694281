#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>
#include <type_traits>

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
  X(clustered_keys)                 \
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

AttentionChoices AttentionChoices::to(Device device) const {
  AttentionChoices result = *this;
  for (Tensor* x : {&result.planes, &result.codes, &result.labels, &result.topk, &result.mass, &result.buckets,
                    &result.key_buckets, &result.key_labels})
    if (x->defined()) *x = x->to(device);
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

// Reads a number that is the whole text, in the same way in every locale. `what` begins the message of an error.
template <class T>
T SpecReader::parsed(const std::string& what, const std::string& text, T minimum, T maximum) const {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= minimum && value <= maximum))  // also not a number
    fail(concat(what, ": expected ", std::is_integral_v<T> ? "a whole number" : "a number", " from ", minimum, " to ",
                maximum, ", got '", text, "'"));
  return value;
}

int64_t SpecReader::number(const char* what) {
  number_asked_ = what;
  if (spec_.number.empty()) fail(concat("expected a number of ", what, ", as in ", spec_.variant->name, "-100"));
  return parsed<int64_t>(what, spec_.number, 1, std::numeric_limits<int32_t>::max());  // labels and indices are int32
}

std::string SpecReader::text(const char* option, const std::string& preset, const char* help) {
  asked_.push_back({option, preset, help});
  if (const auto found = spec_.options.find(option); found != spec_.options.end()) return found->second;
  if (const auto found = defaults_.find(option); found != defaults_.end()) return found->second;
  return preset;
}

int64_t SpecReader::integer(const char* option, int64_t preset, int64_t minimum, int64_t maximum, const char* help) {
  return parsed(concat("option ", option), text(option, concat(preset), help), minimum, maximum);
}

double SpecReader::real(const char* option, double preset, double minimum, double maximum, const char* help) {
  const std::string given = text(option, concat(preset), help);
  return given == concat(preset) ? preset : parsed(concat("option ", option), given, minimum, maximum);
}

bool SpecReader::flag(const char* option, bool preset, const char* help) {
  const std::string given = text(option, preset ? "true" : "false", help);
  if (given != "true" && given != "false")
    fail(concat("option ", option, ": expected true or false, got '", given, "'"));
  return given == "true";
}

void SpecReader::finish() const {
  if (!spec_.number.empty() && number_asked_.empty()) fail(concat(spec_.variant->name, " takes no number"));
  std::vector<std::string> known;
  for (const Option& option : asked_) known.push_back(option.name);
  for (const auto& [name, value] : spec_.options)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(concat("unknown option '", name, "'", did_you_mean(name, known), "; it has ",
                  known.empty() ? "none" : joined(known)));
}

AttentionSpec parse_attention(const std::string& spec) {
  const size_t colon = spec.find(':');
  const std::string head = spec.substr(0, colon);
  // The number is the digits behind the last dash.
  const size_t digits = head.find_last_not_of("0123456789") + 1;
  const bool has_number = digits > 0 && digits < head.size() && head[digits - 1] == '-';
  const std::string name = has_number ? head.substr(0, digits - 1) : head;
  AttentionSpec result;
  if (has_number) result.number = head.substr(digits);
  std::vector<std::string> names, similar;
  for (const AttentionVariant* variant : variants()) {
    if (variant->name == name) result.variant = variant;
    names.push_back(variant->name);
    similar.push_back(variant->name + head.substr(name.size()));
  }
  check<UsageError>(result.variant, "unknown attention '", head, "'", did_you_mean(head, similar),
                    "; the variants are ", joined(names));
  if (colon == std::string::npos) return result;

  for (size_t begin = colon + 1, end; begin <= spec.size(); begin = end + 1) {
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
  const bool scales = parsed.variant->has_scale;
  const double scale = scales ? reader.real("scale", 0, 0, 1e6, "factor of the scores, 0: 1/sqrt(head size)") : 0;
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
    SpecReader reader({variant, "25", {}});  // so many clusters leave the defaults as they usually are
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
