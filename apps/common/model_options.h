#pragma once
// The settings of a transformer's encoder.
#include "apps/common/settings.h"
#include "core/device.h"
#include "nn/transformer.h"

namespace cairn {

// Declares sizes, dropout, norm and activation; a program declares --attention itself.
void model_fields(SettingFields& f, TransformerOptions& model);
// Call it before anything is written. Errors: UsageError: the options contradict each other; DeviceError: the encoder
// does not fit in memory.
void validate_model(const TransformerOptions& model, Device device);

}  // namespace cairn
