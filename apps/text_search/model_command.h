#pragma once
// What the commands that embed texts have in common.
#include <cstdint>
#include <string>

#include "apps/common/options.h"
#include "apps/common/program.h"
#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// Error (UsageError): no --model was given.
void expect_model(const std::string& model, const std::string& command);

struct ModelCommand {
  // Adds a command with --model. `batch` is the default of --batch.
  ModelCommand(CLI::App& app, const char* name, const char* summary, const std::string& footer, int64_t batch,
               const std::string& model_help = "the model's folder");
  // Declares --batch and the options of every program, behind the command's own.
  void define_rest(const std::string& batch_help);

  // From here on interrupts are caught.
  void read_options();
  // Errors (UsageError): no --model; as CommonSettings::apply.
  EmbedderOptions embedder_options(const std::string& attention = "full") const;

  std::string command_name;
  CLI::App& command;
  Options options;
  CommonSettings common;
  OutputOptions output;
  std::string model;
  int64_t batch;
};

}  // namespace cairn::text_search
