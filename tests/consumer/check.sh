#!/bin/sh
# check.sh STEP BUILD WORK CMAKE GENERATOR COMPILER: what a user of the installed library does. Steps:
#   install       the build in folder BUILD into a prefix below WORK, which then moves
#   find_package  a CMake project finds the moved library, is built and learns; a plugin with the library within it works
#   pkg-config    the same with one line of the compiler; exits with 77 where there is no pkg-config
#   subdirectory  a project around this one can be configured, keeps its own settings and finds the headers
#   options       a build in a folder with an odd name uses what it is given, or refuses it
set -eu
step=$1 build=$2 work=$3 cmake=$4 generator=$5 compiler=$6
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
learns() {
  "$@" | tee "$work/printed-$step"
  awk '$1 == "loss" { loss[++count] = $2 } END { exit !(count == 2 && loss[2] < 0.9 * loss[1]) }' "$work/printed-$step"
}
case $step in
  install)
    rm -rf "$work"
    "$cmake" --install "$build" --prefix "$work/first" >/dev/null
    mv "$work/first" "$work/prefix"
    if grep -rIlF -e "$work" -e "$build" "$work/prefix"; then echo "these name the folder of the build"; exit 1; fi
    "$work/prefix/bin/copy-task" --version ;;
  find_package)
    "$cmake" -G "$generator" -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler"
    "$cmake" --build "$work/build"
    learns "$work/build/consumer"
    "$work/build/host" "$work/build/libplugin.so" ;;
  pkg-config)
    command -v pkg-config || exit 77
    cd "$work"  # pkg-config does not quote what the shell reads, so $work stays out of its paths
    PKG_CONFIG_PATH=$(dirname "$(find prefix -name cairn.pc)"):${PKG_CONFIG_PATH:-}
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046  # words of the command line
    "$compiler" -I "$here/own" "$here/main.cpp" -o "$work/consumer" $(pkg-config --cflags --libs cairn)
    learns "$work/consumer"
    # shellcheck disable=SC2046
    "$compiler" -shared -fPIC "$here/plugin.cpp" -o "$work/plugin.so" $(pkg-config --cflags --libs cairn)
    "$compiler" "$here/host.cpp" -o "$work/host" -ldl
    "$work/host" "$work/plugin.so" ;;
  subdirectory)
    around="$work/R&D (1), a\$b"
    "$cmake" -G "$generator" -S "$here" -B "$around" -DCAIRN_SOURCE="$root" -DCMAKE_CXX_COMPILER="$compiler"
    "$cmake" --build "$around" --target cairn_headers
    # A user's program may have -ffast-math; the library's sources may not.
    "$compiler" -std=c++20 -ffast-math -fsyntax-only -I "$here/own" -I "$around/cairn/include" "$here/main.cpp"
    "$compiler" -std=c++20 -ffast-math -fsyntax-only -I "$root" "$root/core/error.cpp" 2>&1 | grep "compile Cairn without" ;;
  options)
    folder="$work/R&D (1)"
    rm -rf "$folder"
    "$cmake" -G "$generator" -S "$root" -B "$folder" -DCMAKE_CXX_COMPILER="$compiler" -DCAIRN_TESTS=OFF \
      -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DMINE" -DCMAKE_INSTALL_LIBDIR=/usr/lib/here -DCMAKE_INSTALL_INCLUDEDIR=/usr/include/here
    grep -m 1 -e "-O2 -DMINE" "$folder/compile_commands.json"
    grep -x -e "libdir=/usr/lib/here" -e "includedir=/usr/include/here" "$folder/package/cairn.pc" | wc -l | grep -x 2
    grep -rE --include="build.*" 'rm -rf ".*/R&D \(1\)/demo"' "$folder"
    "$cmake" "$folder" -DBUILD_SHARED_LIBS=ON 2>&1 | grep "BUILD_SHARED_LIBS: "
    "$cmake" "$folder" -DBUILD_SHARED_LIBS=OFF -DCMAKE_CXX_FLAGS=-ffast-math 2>&1 | grep -e "-ffast-math: "
    "$cmake" "$folder" -DCMAKE_CXX_FLAGS= -DCMAKE_CUDA_FLAGS=--use_fast_math 2>&1 | grep -e "CMAKE_CUDA_FLAGS: -use_fast_math: "
    printf '#!/bin/sh\necho "Cuda compilation tools, release 11.8, V11.8.89"\n' >"$folder/nvcc"
    chmod +x "$folder/nvcc"
    "$cmake" "$folder" -DCMAKE_CUDA_FLAGS= -DCAIRN_CUDA=ON -DCMAKE_CUDA_COMPILER="$folder/nvcc" 2>&1 | tr -d '\n' |
      grep -o "needs CUDA 12 or later.*is of *CUDA *11.8"
    # The commit is that of a folder's own repository.
    GIT_DIR=$root/.git "$cmake" -DSOURCE="$here" -DOUT="$folder/commit.h" -DVERSION=1 -P "$root/apps/common/commit.cmake"
    grep unknown "$folder/commit.h" ;;
  *) echo "check.sh: no such step: $step"; exit 2 ;;
esac
