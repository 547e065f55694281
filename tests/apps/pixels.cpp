// The patches of images, and what clusters share, by hand.
#include <unistd.h>

#include <filesystem>

#include "apps/pixels/model.h"
#include "nn/io/file.h"
#include "tests/catch.h"

using namespace cairn;
using namespace cairn::pixels;

TEST_CASE("pixels: a position is a patch, from the top left, row by row", "[pixels]") {
  const std::string folder = std::filesystem::temp_directory_path() / concat("cairn-pixels-", getpid());
  std::filesystem::create_directory(folder);
  std::string shades(2 * side * side, '\0');
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x) shades[size_t(side * side + side * y + x)] = char(x == 27 ? 255 : 2 * y);
  const std::string two("\0\0\0\2", 4), size("\0\0\0\x1c\0\0\0\x1c", 8);
  write_file(folder + "/t10k-images-idx3-ubyte", {std::string("\0\0\x8\x3", 4), two, size, shades});
  write_file(folder + "/t10k-labels-idx1-ubyte", {std::string("\0\0\x8\x1", 4), two, std::string("\x9\0", 2)});
  const Images images(folder, "t10k", 4);
  std::filesystem::remove_all(folder);
  REQUIRE(images.input.shape() == Shape{2, 49, 16});
  CHECK(images.target.to_vector<int32_t>() == std::vector<int32_t>{9, 0});
  const std::vector<float> found = images.input.to_vector<float>();
  for (int64_t i = 0; i < 2 * 49 * 16; ++i) {
    const int64_t y = i / (7 * 16) % 7 * 4 + i / 4 % 4, x = i / 16 % 7 * 4 + i % 4;
    const int64_t byte = i < 49 * 16 ? 0 : x == 27 ? 255 : 2 * y;
    REQUIRE(found[size_t(i)] == Approx(double(byte) / 127.5 - 1).margin(1e-6));
  }
}

TEST_CASE("pixels: pairs of near positions, and of far ones with the same shade, that share a cluster", "[pixels]") {
  // 4 x 4 positions; two heads of one image.
  const std::vector<float> shade = {-1, -1, .5, .5,  //
                                    -1, -1, .5, .5,  //
                                    0,  0,  0,  0,   //
                                    0,  0,  0,  .5};
  std::vector<int32_t> labels;
  for (int i = 0; i < 16; ++i) labels.push_back(int(4 * shade[size_t(i)]));  // head 1: the shade
  for (int i = 0; i < 16; ++i) labels.push_back(i / 4 / 2);                  // head 2: the upper half, the lower half
  const auto shares = [&](int64_t begin) {
    const Tensor all = Tensor::from(labels, {2, 1, 16});
    return cluster_shares(all.slice(begin, begin + 1), Tensor::from(shade, {1, 16}));
  };
  // By shade: clusters of 4, 5 and 7, so 6 + 10 + 21 of 120 pairs; all far pairs of one shade, no near ones of two.
  const auto by_shade = shares(0), by_half = shares(1);
  CHECK(by_shade[0] == Approx(37.0 / 120));
  CHECK(by_shade[1] == 0);
  CHECK(by_shade[2] == 1);
  CHECK(by_half[0] == Approx(56.0 / 120));
  CHECK(by_half[1] == Approx(7.0 / 17));
  CHECK(by_half[2] == Approx(8.0 / 12));
}
