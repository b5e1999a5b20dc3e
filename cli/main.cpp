#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app{"Trains neural networks data-parallel from YAML job specs", "dtorch"};
  app.set_version_flag("--version", "dtorch " DTORCH_VERSION);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
