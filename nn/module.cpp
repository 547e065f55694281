#include "nn/module.h"

#include <unordered_set>

namespace cairn {
namespace {

// A visitor that passes everything on under a longer name.
class Prefixed : public Fields {
 public:
  Prefixed(std::string prefix, Fields& fields) : prefix_(std::move(prefix)), fields_(fields) {}
  using Fields::operator();
  void operator()(const std::string& name, Variable& parameter) override { fields_(prefix_ + '.' + name, parameter); }

 private:
  std::string prefix_;
  Fields& fields_;
};

}  // namespace

void Fields::operator()(const std::string& name, Module& module) {
  Prefixed within(name, *this);
  module.fields(within);
}

NamedVariables named_parameters(Module& module) {
  struct Collector : Fields {
    NamedVariables found;
    std::unordered_set<std::string> names;
    using Fields::operator();
    void operator()(const std::string& name, Variable& parameter) override {
      if (!parameter.defined()) return;
      check(names.insert(name).second, "module: two parameters are called ", name, "; see fields()");
      found.emplace_back(name, parameter);
    }
  } collector;
  module.fields(collector);
  return collector.found;
}

std::vector<Variable> parameters(Module& module) { return parameters({&module}); }

std::vector<Variable> parameters(std::initializer_list<Module*> modules) {
  std::vector<Variable> result;
  for (Module* module : modules)
    for (const auto& [name, parameter] : named_parameters(*module)) result.push_back(parameter);
  return result;
}

int64_t parameter_count(Module& module) {
  int64_t count = 0;
  for (const Variable& parameter : parameters(module)) count += parameter.elements();
  return count;
}

void move_to(Module& module, Device device) {
  for (Variable& parameter : parameters(module)) {
    parameter.mutable_value() = parameter.value().to(device);
    parameter.clear_grad();
  }
}

void convert_to(Module& module, DType dtype) {
  for (Variable& parameter : parameters(module)) {
    parameter.mutable_value() = parameter.value().cast(dtype);
    parameter.clear_grad();
  }
}

void place(Module& module, const DeviceAndDType& where) {
  struct Setter : Fields {
    DType activations = DType::float32;
    using Fields::operator();
    void operator()(const std::string&, Variable&) override {}
    void operator()(const std::string&, Module& inner) override {
      inner.activations = activations;
      inner.fields(*this);
    }
  } setter;
  setter.activations = where.activations;
  setter("", module);
  move_to(module, where.device);
}

std::string describe(Module& module) {
  std::string text;
  for (const auto& [name, parameter] : named_parameters(module)) text += concat(name, ' ', parameter.shape(), '\n');
  return text + concat(parameter_count(module), " parameters\n");
}

Draw Context::draw(Purpose purpose) const {
  check(generator != nullptr, "context: dropout or clustering draws random numbers here, which needs a generator: ",
        "Context{.training = ..., .generator = &generator}");
  return generator->draw(layer, purpose);
}

Variable uniform_parameter(const Shape& shape, double bound, Generator& generator) {
  RandomStream sequence(generator.seed(), 0, Purpose::initialize, generator.next_parameter());
  return Variable(random_uniform(shape, -bound, bound, sequence), true);
}

Variable normal_parameter(const Shape& shape, Generator& generator) {
  RandomStream sequence(generator.seed(), 0, Purpose::initialize, generator.next_parameter());
  return Variable(random_normal(shape, sequence), true);
}

Variable constant_parameter(const Shape& shape, double value) { return Variable(Tensor::full(shape, value), true); }

}  // namespace cairn
