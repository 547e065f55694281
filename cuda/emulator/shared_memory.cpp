#include "cuda/emulator/shared_memory.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>

#if CAIRN_HOST_CUDA_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace cairn::host_cuda {
namespace {

// ---- static shared memory. __shared__ adds a tag to the names of its variables (cuda_runtime.h). By this tag they are
// found in the symbol table of the program. (Not in a stripped program, and not in shared libraries.)
constexpr std::string_view tag = "B12cairn_shared";

using Symbol = ElfW(Sym);

template <class T>
std::vector<T> read(std::ifstream& file, size_t offset, size_t count) {
  std::vector<T> items(count);
  file.seekg(std::streamoff(offset));
  file.read(reinterpret_cast<char*>(items.data()), std::streamsize(count * sizeof(T)));
  return file ? items : std::vector<T>{};
}

std::vector<Symbol> tagged_symbols(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Symbol> found;
  const auto header = read<ElfW(Ehdr)>(file, 0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return found;
  const auto sections = read<ElfW(Shdr)>(file, header[0].e_shoff, header[0].e_shnum);
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto& strings = sections[section.sh_link];
    const auto names = read<char>(file, strings.sh_offset, strings.sh_size);
    for (const Symbol& symbol : read<Symbol>(file, section.sh_offset, section.sh_size / sizeof(Symbol))) {
      const std::string_view name = names.data() + symbol.st_name;
      if (name.starts_with("_ZZ") && name.find(tag) != name.npos) found.push_back(symbol);
    }
  }
  return found;
}

}  // namespace

std::vector<std::span<unsigned char>> static_shared_variables() {
  static const auto symbols = tagged_symbols("/proc/self/exe");
  dl_phdr_info program{};
  const auto take_first = [](dl_phdr_info* module, size_t, void* to) {
    *static_cast<dl_phdr_info*>(to) = *module;
    return 1;
  };
  dl_iterate_phdr(take_first, &program);
  std::vector<std::span<unsigned char>> variables;
  for (const Symbol& symbol : symbols) {
    const bool is_thread_local = ELF32_ST_TYPE(symbol.st_info) == STT_TLS;  // (the same for 64 bits)
    auto* const base = is_thread_local ? static_cast<unsigned char*>(program.dlpi_tls_data)
                                       : reinterpret_cast<unsigned char*>(program.dlpi_addr);
    size_t bytes = symbol.st_size;
#if CAIRN_HOST_CUDA_ASAN
    // The symbol's size includes the sanitizer's zone after the variable.
    if (void* end = __asan_region_is_poisoned(base + symbol.st_value, bytes))
      bytes = size_t(static_cast<unsigned char*>(end) - base) - symbol.st_value;
#endif
    variables.emplace_back(base + symbol.st_value, bytes);
  }
  return variables;
}

// ---- dynamic shared memory

// The contents of a guard zone. As float or bfloat16 they are NaN, too.
constexpr auto guard = [] {
  std::array<unsigned char, guard_bytes> zone{};
  for (size_t i = 0; i < guard_bytes; ++i) zone[i] = i % 2 ? 0xff : 0xfe;
  return zone;
}();

void DynamicShared::start_block(size_t bytes) {
  if (!memory_ || bytes != bytes_) memory_.reset(new unsigned char[bytes + 2 * guard_bytes]);
  bytes_ = bytes;
  std::copy(guard.begin(), guard.end(), memory_.get());
  std::memset(memory_.get() + guard_bytes, 0xff, bytes);
  std::copy(guard.begin(), guard.end(), memory_.get() + guard_bytes + bytes);
}

std::optional<ptrdiff_t> DynamicShared::damage() const {
  for (const size_t zone : {size_t{0}, guard_bytes + bytes_}) {
    const unsigned char* const found = memory_.get() + zone;
    unsigned char difference = 0;  // (to the thread sanitizer, memcmp would be a read by this CUDA thread)
    for (size_t i = 0; i < guard_bytes; ++i) difference |= found[i] ^ guard[i];
    if (difference)
      return std::mismatch(guard.begin(), guard.end(), found).second - memory_.get() - ptrdiff_t(guard_bytes);
  }
  return std::nullopt;
}

}  // namespace cairn::host_cuda
