#pragma once
// The interface of attention variants: functions of queries, keys, values and a mask. A variant is one file in this
// folder and its line in the list of registry.cpp; README.md says how to add one.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "nn/module.h"

namespace cairn {

// The random or discrete choices of a variant. Undefined: it has no such choice, or has not made it yet.
// to() (registry.cpp) lists all members.
struct AttentionChoices {
  Tensor planes;       // float32 [bits, D + 1]: the hyperplanes of the hash, the last column their thresholds
  Tensor codes;        // uint64 [B, H, N]: the hashes of the queries
  Tensor labels;       // int32 [B, H, N]: the cluster of each query, -1 for none
  Tensor key_labels;   // int32 [B, H, S]: of each key, if keys are clustered
  Tensor topk;         // int32 [B, H, C, k] or [B, H, N, k]: the top keys of each cluster or query
  Tensor mass;         // [B, H, C]: the weights of the centroids on these keys; always computed
  Tensor buckets;      // int32 [B, H, R, N]: the bucket of each query in each round, -1 for none
  Tensor key_buckets;  // int32 [B, H, R, S]: of each key, if the queries are not the keys

  AttentionChoices to(Device device) const;
};

struct AttentionContext : Context {
  AttentionChoices* choices = nullptr;  // the variant uses those that are defined, and writes the others
  double dropout = 0;                   // of attention weights; acts in training alone

  // The choice: the defined one, else what `choose` returns.
  template <class Choose>
  Tensor choice(Tensor AttentionChoices::*which, const Choose& choose) const {
    Tensor unseen;
    Tensor& chosen = choices ? choices->*which : unseen;
    if (!chosen.defined()) chosen = choose();
    return chosen;
  }

  // The dropout of this call, drawn for `purpose`; none outside training.
  Dropout weights_dropout(Purpose purpose) const {
    if (!training || dropout == 0) return {};
    return {float(dropout), draw(purpose)};
  }
};

// The problem whose cost flops() estimates: self-attention over `length` positions.
struct AttentionWork {
  double length, head_size;
  bool backward;  // forward and backward, or forward alone

  // Floating-point operations of one query that attends to `keys` keys (at most all). A multiply-add counts as two.
  // Forward takes 4 D for each key, for its score and its value; backward 10 D, for the score again and four products.
  double attend(double keys) const { return (backward ? 14 : 4) * std::min(keys, length) * head_size; }
};

class Attention : public Module {
 public:
  // q [B, N, H, D], k [B, S, H, D], v [B, S, H, M] -> [B, N, H, M]. Queries beyond their length get zeros. So do
  // queries that see no key (but with lsh, if they are the keys, their own value). Errors: shapes that disagree; a mask
  // that the variant cannot honor (UsageError).
  virtual Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                              const AttentionContext& context) const = 0;
  // Does it use the queries as keys? Then k is ignored, and a layer has no key projection.
  virtual bool shares_keys() const { return false; }
  // Parameters of its own; most variants have none. initialize() draws them once, before the first call.
  void fields(Fields&) override {}
  virtual void initialize(int64_t /*heads*/, int64_t /*head_size*/, Generator&) {}
  // Estimated floating-point operations for one query of one head; the benchmark compares times with them.
  virtual double flops(const AttentionWork& work) const = 0;
  // Why the variant computes full attention on so many queries and keys: "its 32 top keys are all 32 keys". Empty if
  // it does not, or if its name says that it does.
  virtual std::string full_because(int64_t /*queries*/, int64_t /*keys*/) const { return ""; }

  // The numbers of clusters of queries, of iterations that find them, and of top keys that the specification asks for.
  // 0: none.
  virtual int64_t clusters() const { return 0; }
  virtual int iterations() const { return 0; }
  virtual int64_t topk() const { return 0; }

  // The specification: "i-clustered-100:topk=16".
  const std::string& spec() const { return spec_; }
  // The factor of the scores; 0 stands for 1 / sqrt(D).
  double scale() const { return scale_; }

 protected:
  AttentionOptions options(const AttentionMask& mask, const AttentionContext& context,
                           Purpose purpose = Purpose::attention_dropout) const {
    return {mask, context.weights_dropout(purpose), scale_};
  }
  // Error (UsageError): the mask has more than lengths (or than lengths and causal). `why` ends the message: why the
  // variant cannot honor more.
  void lengths_only(const AttentionMask& mask, const char* why) const;
  void lengths_or_causal_only(const AttentionMask& mask, const char* why) const;

 private:
  friend std::unique_ptr<Attention> make_attention(const std::string&, const std::map<std::string, std::string>&);
  std::string spec_;
  double scale_ = 0;  // 0: 1 / sqrt(D)
};

// ---- specifications: name[-number][:option=value,...]

struct AttentionVariant;

// A parsed specification: "i-clustered-100:topk=16" gives the variant i-clustered, "100" and {topk: "16"}. Errors
// (UsageError): unknown name, not of the form above. make_attention checks the number and the options.
struct AttentionSpec {
  const AttentionVariant* variant = nullptr;
  std::string number;  // empty: none
  std::map<std::string, std::string> options;
};
AttentionSpec parse_attention(const std::string& spec);

// Reads the number and the options of a specification. A variant asks for each option that it has; any other option is
// an error.
class SpecReader {
 public:
  explicit SpecReader(AttentionSpec spec, std::map<std::string, std::string> defaults = {})
      : spec_(std::move(spec)), defaults_(std::move(defaults)) {}

  // The number after the name: "100" of clustered-100. Error: missing, below 1.
  int64_t number(const char* what);
  // Options. Errors: malformed, out of range.
  int64_t integer(const char* option, int64_t preset, int64_t minimum, int64_t maximum, const char* help);
  double real(const char* option, double preset, double minimum, double maximum, const char* help);
  bool flag(const char* option, bool preset, const char* help);
  std::string text(const char* option, const std::string& preset, const char* help);

  // Error: an option that was not asked for; says what was close and what exists.
  void finish() const;
  // Throws the error of a wrong specification.
  [[noreturn]] void fail(const std::string& message) const;

  struct Option {
    std::string name, preset, help;
  };
  // What the variant asked for: for --help.
  const std::vector<Option>& asked() const { return asked_; }
  const std::string& number_asked() const { return number_asked_; }

 private:
  template <class T>
  T parsed(const std::string& what, const std::string& text, T minimum, T maximum) const;

  AttentionSpec spec_;
  std::map<std::string, std::string> defaults_;
  std::vector<Option> asked_;
  std::string number_asked_;
};

// An entry of the list of variants.
struct AttentionVariant {
  const char* name;     // "i-clustered"
  const char* summary;  // one line
  std::unique_ptr<Attention> (*make)(SpecReader& spec);
  bool has_scale = true;  // the option scale
};

// All variants, in the order of the documentation.
const std::vector<const AttentionVariant*>& attention_variants();

// Appends a program's own variant to the list; it must outlive all use. Error (UsageError): the name exists. No other
// thread may read the list at the same time.
void add_attention_variant(const AttentionVariant& variant);

// Makes the variant of a specification, such as "i-clustered-100:topk=32,bits=63". `defaults` apply to options that the
// specification does not give; a default for an option that the variant lacks is ignored. Errors (UsageError): unknown
// name or option (says what was close and what exists), a missing or surplus number, values out of range.
std::unique_ptr<Attention> make_attention(const std::string& spec,
                                          const std::map<std::string, std::string>& defaults = {});

// A note for users if the variant computes full attention on so many queries and keys, because then its results do not
// show that few clusters or keys suffice. Else empty.
std::string full_attention_note(const Attention& attention, int64_t queries, int64_t keys);

// A few lines for --help: every variant with its options and their presets.
std::string describe_attention_variants();

}  // namespace cairn
