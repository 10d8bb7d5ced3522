#pragma once
#include "examples/text/tokenizer/tokenizer.h"
#include "triax/core/check.h"
#include "triax/core/io/json.h"

namespace triax::text {

/// Tokens of files, or of a model, that come without a tokenizer: their text is numbers, `464
/// 3290`.
class Numbers : public Vocabulary {
 public:
  explicit Numbers(int64_t rows) : rows_(rows) {}
  /// Reads a text of json(). Throws Error 65.
  explicit Numbers(const nn::JsonReader& root) : rows_(int64_t(root.at("rows").number(1 << 30))) {
    root.require(root.at("format").text() == "triax-numbers" && rows_ > 0,
                 "is of another format; expected triax-numbers");
  }

  int64_t size() const override { return rows_; }
  bool has_texts() const override { return false; }
  size_t encode(const Passage& passage, std::vector<int32_t>& tokens) const override;
  void decode(int32_t token, std::string& text) const override {
    text += fmt::format(" {}", token);
  }
  std::string json() const override {
    return fmt::format("{{\"format\": \"triax-numbers\", \"rows\": {}}}\n", rows_);
  }

 private:
  int64_t rows_;
};

}  // namespace triax::text
