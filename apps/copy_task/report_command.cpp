// copy-task report: a run's page, written anew.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/saved_run_command.h"
#include "nn/io/file.h"

namespace cairn::copy_task {
namespace {

struct ReportCommand : SavedRunCommand {
  explicit ReportCommand(CLI::App& app)
      : SavedRunCommand(app, "report", "Write a run's report.html anew, also of one that still runs or was interrupted",
                        "Example:\n  copy-task report --run run --to report.html") {
    add_path(command, "--to", to, "FILE", "the file to write; by default report.html in the run's folder");
    add_path(command, "--curves", curves, "FILE", "write the curves of loss and accuracy alone here too (SVG)");
    define_common();
  }

  void execute() override {
    if (to.empty()) to = (std::filesystem::path(run) / "report.html").string();
    const std::unique_ptr<Trained> trained = read();
    const ReportInput input = report_input(*trained, run);
    replace_file(to, {make_report(input)});
    if (!curves.empty()) replace_file(curves, {make_curves(input)});
    nlohmann::ordered_json json = {{"report", to}};
    if (!curves.empty()) json["curves"] = curves;
    print(output.json ? json.dump() + "\n" : to + "\n" + (curves.empty() ? "" : curves + "\n"));
  }

  std::string to, curves;
};

}  // namespace

void define_report(CLI::App& app) { define_command<ReportCommand>(app); }

}  // namespace cairn::copy_task
