#include "apps/answers/questions.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/common/program.h"
#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::answers {

// Fills in a question, and returns why it is left out; empty: it is not.
static std::string read_question(const Json& json, const text_search::WordPiece& tokenizer, int64_t max_tokens,
                                 Question& question) {
  question.right = json.at("answer");
  question.overlap = json.at("overlap");
  question.idf_overlap = json.at("idf_overlap");
  question.source = json.at("source");
  std::vector<int32_t>& tokens = question.tokens;
  tokens = tokenizer.encode(json.at("question").get<std::string>());
  if (tokens.size() == 2) return "empty";
  if (int64_t(tokens.size()) >= max_tokens) return "too long";
  const auto add = [&](const std::string& text) {
    const std::vector<int32_t> more = tokenizer.tokenize(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return int64_t(tokens.size());
  };
  for (const Json& entry : json.at("entries")) {
    question.entries.push_back(int64_t(tokens.size()));
    const int64_t end = add(entry.at(0));
    if (question.entries.size() == question.right + 1) {
      question.begin = question.entries.back();
      question.end = end;
    }
    add(":");
    add(entry.at(1));
  }
  if (question.end == question.begin) return "without an answer";
  if (question.end >= max_tokens) return "with an answer that is cut off";
  tokens.resize(std::min(tokens.size(), size_t(max_tokens) - 1));
  for (int64_t& each : question.entries) each = std::min(each, int64_t(tokens.size()));
  question.entries.push_back(int64_t(tokens.size()));
  tokens.push_back(tokenizer.sep());
  return "";
}

std::vector<Question> read_questions(const std::string& file, const std::string& part,
                                     const text_search::WordPiece& tokenizer, int64_t max_tokens,
                                     int64_t answer_tokens) {
  std::vector<Question> questions;
  std::map<std::string, int64_t> left_out;
  int64_t line = 0;
  for (const std::string& text : text_search::lines_of(read_file(file))) {
    if (interrupted()) throw Interrupted();
    const std::string where = concat(file, ": line ", ++line);
    const Json json = parse_json(text, where);
    try {
      if (json.at("part") != part) continue;
      Question question;
      const std::string reason = read_question(json, tokenizer, max_tokens, question);
      if (reason.empty())
        questions.push_back(std::move(question));
      else
        ++left_out[reason];
    } catch (const Json::exception&) {
      throw DataError(concat(where, ": not a line that debian_questions.py writes"));
    }
  }
  for (const auto& [reason, count] : left_out)
    note(concat(file, ": questions of ", part, " that are left out: ", count, " ", reason), false);
  check<DataError>(!questions.empty(), file, ": the part ", part, " has no questions");
  int64_t longer = 0;
  for (const Question& each : questions) longer += each.end - each.begin > answer_tokens;
  if (longer > 0)
    note(concat(file, ": questions of ", part, " with an answer of more than ", answer_tokens,
                " tokens, which is never found: ", longer, "; give a larger --answer-tokens"),
         false);
  return questions;
}

}  // namespace cairn::answers
