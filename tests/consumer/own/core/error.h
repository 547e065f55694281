#pragma once
// Of the consumer's own project, whose folder comes first where headers are looked for.
enum class Error { none, consumer };
