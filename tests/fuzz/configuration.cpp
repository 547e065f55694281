// A configuration is refused with a UsageError, or with a DataError if it is not JSON. Otherwise its settings, written
// as a configuration, give the same settings again.
#include <nlohmann/json.hpp>

#include "apps/copy_task/settings.h"
#include "nn/io/json.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;

namespace {

Json settings_of(const Json& configuration) {
  SettingFields fields;
  copy_task::Settings settings;
  settings.fields(fields);
  fields.assign(fields.checked(configuration, "fuzz"));
  return fields.config();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Json settings;
  try {
    settings = settings_of(parse_json({reinterpret_cast<const char*>(data), size}, "fuzz"));
  } catch (const DataError& error) {
    expect_short_line(error.what());
    return 0;
  } catch (const UsageError&) {
    return 0;
  }
  expect(settings_of(settings) == settings, "other settings the second time");
  return 0;
}
