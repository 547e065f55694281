// text-search embed and tokenize: the embeddings and the tokens of a text file's lines.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/variants.h"
#include "apps/text_search/embedder.h"
#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/safetensors.h"

namespace cairn::text_search {
namespace {

// Error (UsageError): --text-file is missing.
void check_given(const std::string& file) {
  check<UsageError>(!file.empty(), "expected --text-file with a file, or - for standard input");
}

// The lines of a file; "-" is standard input. Error (DataError): it cannot be read.
std::vector<std::string> lines_in(const std::string& file) {
  if (file != "-") return lines_of(read_file(file));
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  check<DataError>(std::ferror(stdin) == 0, "standard input: cannot be read");
  return lines_of(text);
}

}  // namespace

void embed_command(CommandLine& line) {
  EmbedderOptions options;
  std::string file, out;
  line("text-file", file, Text::file, "file with one text per line; - is standard input", Keep::not_in_config);
  line("out", out, Text::file, "file to write the embeddings to", Keep::not_in_config);
  line("attention", options.attention, one_variant, "attention variant");
  options.fields(line);
  line.footer(
      "Each line is a text. --out is a safetensors file with `embeddings` [lines, features], float32, in rows\n"
      "of unit length.\n\nExample:\n"
      "  text-search embed --model model --text-file sentences.txt --out sentences.safetensors");
  line.parse();
  catch_interrupts(line.quiet);
  check_given(file);
  check<UsageError>(!out.empty(), "expected --out with a file for the embeddings");
  const std::filesystem::path path = output_path("--out", out, file == "-" ? "" : file);
  const Embedder embedder(options);
  const std::vector<std::string> lines = lines_in(file);
  const Stopwatch time;
  const Sequences texts = embedder.encode(lines);
  int64_t tokens = 0;
  for (const auto& text : texts) tokens += int64_t(text.size());
  write_safetensors(path, {{{"embeddings", embedder.embed(texts, line.quiet)}}, {}, {}});
  const double seconds = time.seconds();
  line.tell({{"out", out}, {"texts", texts.size()}, {"tokens", tokens}, {"seconds", seconds}},
            concat(out, ": texts: ", texts.size(), ", tokens: ", tokens, "; ", formatted("%.1f s, ", seconds),
                   formatted("%.0f tokens/s\n", double(tokens) / seconds)));
}

void tokenize_command(CommandLine& line) {
  std::string model, file;
  line("model", model, Text::folder, "folder with vocab.txt and, if it exists, tokenizer_config.json",
       Keep::not_in_config);
  line("text-file", file, Text::file, "text file; - is standard input", Keep::not_in_config);
  line.footer(
      "Prints a JSON array of token ids for each line. An id is a line number in vocab.txt, counted from 0.\n"
      "[CLS] is the first and [SEP] the last.\n\nExamples:\n"
      "  text-search tokenize --model model --text-file words.txt\n"
      "  echo 'a stitch in time' | text-search tokenize --model model --text-file -");
  line.parse();
  check_given(file);
  const WordPiece tokenizer = read_wordpiece(model);
  for (const std::string& text : lines_in(file)) print(nlohmann::json(tokenizer.encode(text)).dump() + "\n");
}

}  // namespace cairn::text_search
