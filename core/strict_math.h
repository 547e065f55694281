#pragma once
// Refuses -ffast-math, -Ofast and their parts for Cairn's own sources: with them the compiler removes the checks for
// NaN and reorders sums. CMakeLists.txt also refuses what no macro tells. Programs that use Cairn may have these
// options: the installed headers do not include this file (core/package/headers.cmake).
#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "compile Cairn without -ffast-math, -Ofast and their parts; only targets of your own may have them"
#endif
