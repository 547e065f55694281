#pragma once
// Of the consumer's own project, as error.h beside it.
struct Shape {
  int sides;
};
