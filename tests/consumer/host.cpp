// host PLUGIN: loads the plugin, uses it and unloads it, twice.
#include <dlfcn.h>

#include <cstdio>

int main(int, char** arguments) {
  for (int turn = 0; turn < 2; ++turn) {
    void* const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    const auto sum = reinterpret_cast<double (*)(int)>(dlsym(plugin, "sum_of_products"));
    const double found = sum ? sum(200) : 0;
    std::printf("%.0f\n", found);
    if (found != 2 * 200.0 * 200 * 200 || dlclose(plugin) != 0) return 1;
  }
}
