#pragma once
// A module is a struct with named fields: parameters and other modules. It lists them once, in fields(), and that
// drives parameters, device moves and printing. Names are joined with dots: "layers.0.attention.query.weight".
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "core/random.h"
#include "nn/purpose.h"

namespace cairn {

class Module;

// Receives the fields of a module.
class Fields {
 public:
  virtual ~Fields() = default;
  virtual void operator()(const std::string& name, Variable& parameter) = 0;
  // An inner module: `name` and a dot come before the names of its fields. Undefined parameters (a layer without bias)
  // are left out.
  virtual void operator()(const std::string& name, Module& module);
  template <class M>
  void operator()(const std::string& name, std::vector<std::unique_ptr<M>>& modules) {
    for (size_t i = 0; i < modules.size(); ++i) (*this)(name + '.' + std::to_string(i), *modules[i]);
  }
};

// A module cannot be copied: the copy's parameters would be the same variables.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual void fields(Fields& fields) = 0;

  // The element type of activations: a model casts its first ones to it, and layers follow their input. See place().
  DType activations = DType::float32;
};

// In the order of fields(). Error: two have the same name.
NamedVariables named_parameters(Module& module);
std::vector<Variable> parameters(Module& module);
std::vector<Variable> parameters(std::initializer_list<Module*> modules);
// The number of elements of all parameters.
int64_t parameter_count(Module& module);

// Moves or converts all parameters, in place: optimizers made before see the new ones, but their moments stay behind.
void move_to(Module& module, Device device);
void convert_to(Module& module, DType dtype);

// Where a module computes, and the element type of its activations: float32, or on CUDA bfloat16.
struct DeviceAndDType {
  Device device = Device::cpu;
  DType activations = DType::float32;
};
// Moves all parameters, which stay float32, and sets `activations` of the module and of all inner ones.
void place(Module& module, const DeviceAndDType& where);

// One line for each parameter, with its shape, and a line with parameter_count().
std::string describe(Module& module);

// What a forward pass needs to know besides its inputs.
struct Context {
  bool training = false;                 // dropout acts
  const Generator* generator = nullptr;  // draws the random numbers of dropout and clustering
  uint32_t layer = 0;                    // draws differ by layer: no two layers of a model share a number

  // Error: no generator.
  Draw draw(Purpose purpose) const;
  Context at_layer(uint32_t number) const {
    Context result = *this;
    result.layer = number;
    return result;
  }
};

// Parameters with uniform numbers in [-bound, bound), normal numbers, or one value.
Variable uniform_parameter(const Shape& shape, double bound, Generator& generator);
Variable normal_parameter(const Shape& shape, Generator& generator);
Variable constant_parameter(const Shape& shape, double value);

}  // namespace cairn
