// Lesson 7, on paper: query 4 of nn/attention/EXAMPLE.md with two clusters and two top keys
// (apps/lessons/07_clusters.md).
#include <cmath>
#include <cstdio>

// Type your numbers here; three digits are enough.
struct Paper {
  double centroid[2];  // the mean query of cluster 2
  double scores[6];    // its products with the keys
  double mass, rest;   // m_2 and B_2
  double result;       // of query 4
};
constexpr Paper yours =
    // [lesson 7: {};
    {{1, -1}, {-1, -3, -2, 1, 0, 1}, 32 / 47.0, 442 / 47.0, 1978 / 47.0};
// lesson 7]

constexpr double Q[3][2] = {{1, -1}, {1, -2}, {1, 0}};  // of cluster 2
constexpr double K[6][2] = {{2, 3}, {-1, 2}, {-1, 1}, {1, 0}, {-1, -1}, {0, -1}}, V[6] = {40, 10, 8, 32, 32, 64};

double product(const double* q, int key) { return q[0] * K[key][0] + q[1] * K[key][1]; }

int wrong(const char* what, double found, double expected) {
  if (std::fabs(found - expected) <= 2e-3 * std::fabs(expected)) return 0;
  std::printf("%s: your %g is too %s\n", what, found, found < expected ? "small" : "large");
  return 1;
}

int main() {
  const double c[] = {(Q[0][0] + Q[1][0] + Q[2][0]) / 3, (Q[0][1] + Q[1][1] + Q[2][1]) / 3};
  if (wrong("the centroid's first coordinate", yours.centroid[0], c[0])) return 1;
  if (wrong("the centroid's second coordinate", yours.centroid[1], c[1])) return 1;
  double sum = 0, mass = 0, rest = 0, own = 0, value = 0;
  for (int l = 0; l < 6; ++l) {
    char what[50];
    std::snprintf(what, sizeof what, "the centroid's product with key %d", l + 1);
    if (wrong(what, yours.scores[l], product(c, l))) return 1;
    const bool top = product(c, l) >= 1;
    const double a = std::exp2(product(c, l)), b = top ? std::exp2(product(Q[0], l)) : 0;
    sum += a, mass += top ? a : 0, rest += top ? 0 : a * V[l], own += b, value += b * V[l];
  }
  mass /= sum, rest /= sum;
  return wrong("m_2, the mass of the top keys", yours.mass, mass) || wrong("B_2, the rest", yours.rest, rest) ||
         wrong("the result of query 4", yours.result, mass * value / own + rest);
}
