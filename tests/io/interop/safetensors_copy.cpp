// safetensors-copy IN OUT [IN OUT...]: reads each file with nn/io and writes it again. One that is refused leaves no
// OUT and its message on standard output. For safetensors_interop.py.
#include <iostream>

#include "nn/io/safetensors.h"

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) try {
      cairn::write_safetensors(argv[i + 1], cairn::read_safetensors(argv[i]));
    } catch (const cairn::DataError& error) {
      std::cout << error.what() << '\n';
    }
  return 0;
}
