#pragma once
// Which sanitizer this is compiled with. The emulator itself is compiled without the thread sanitizer even where the
// kernels are compiled with it (cuda.cmake says why), and is then told so by CAIRN_HOST_CUDA_TSAN.
#if defined(__SANITIZE_ADDRESS__)
#define CAIRN_HOST_CUDA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAIRN_HOST_CUDA_ASAN 1
#endif
#endif
