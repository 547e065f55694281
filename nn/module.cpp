#include "nn/module.h"

#include <unordered_set>

namespace cairn {
namespace {

template <class F>
class Visitor : public Fields {
 public:
  explicit Visitor(F& f) : f_(f) {}
  using Fields::operator();
  void operator()(const std::string& name, Variable& parameter) override {
    if (parameter.defined()) f_(name, parameter);
  }

 private:
  F& f_;
};

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

// f(name, parameter) for all parameters. Error: two have the same name.
template <class F>
void each(Module& module, F&& f) {
  std::unordered_set<std::string> names;
  const auto once = [&](const std::string& name, Variable& parameter) {
    check(names.insert(name).second, "module: two parameters are called ", name, "; see fields()");
    f(name, parameter);
  };
  Visitor visitor(once);
  module.fields(visitor);
}

}  // namespace

void Fields::operator()(const std::string& name, Module& module) {
  Prefixed within(name, *this);
  module.fields(within);
}

NamedVariables named_parameters(Module& module) {
  NamedVariables result;
  each(module, [&](const std::string& name, Variable& parameter) { result.emplace_back(name, parameter); });
  return result;
}

std::vector<Variable> parameters(Module& module) {
  std::vector<Variable> result;
  each(module, [&](const std::string&, Variable& parameter) { result.push_back(parameter); });
  return result;
}

std::vector<Variable> parameters(std::initializer_list<Module*> modules) {
  std::vector<Variable> result;
  for (Module* module : modules)
    each(*module, [&](const std::string&, Variable& parameter) { result.push_back(parameter); });
  return result;
}

int64_t parameter_count(Module& module) {
  int64_t count = 0;
  each(module, [&](const std::string&, Variable& parameter) { count += parameter.value().elements(); });
  return count;
}

void move_to(Module& module, Device device) {
  each(module, [&](const std::string&, Variable& parameter) {
    parameter.mutable_value() = parameter.value().to(device);
    parameter.clear_grad();
  });
}

void convert_to(Module& module, DType dtype) {
  each(module, [&](const std::string&, Variable& parameter) {
    parameter.mutable_value() = parameter.value().cast(dtype);
    parameter.clear_grad();
  });
}

std::string describe(Module& module) {
  std::string text;
  each(module,
       [&](const std::string& name, Variable& parameter) { text += concat(name, ' ', parameter.shape(), '\n'); });
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
