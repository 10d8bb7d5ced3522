#include "triax/core/io/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::nn {
namespace {

using nlohmann::json;

/// Refuses invalid JSON, deep nesting and repeated keys, in one pass and without keeping the
/// document. nlohmann's parser can call a function for this, but then takes a time that grows with
/// the square of the members of an object.
class Check final : public nlohmann::json_sax<json> {
 public:
  Check(std::string_view text, const std::string& source, int deepest)
      : text_(text), source_(source), deepest_(deepest) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    check_input(keys_.back().insert(name).second, Exit::data, "{}, {} is given twice", source_,
                printable(name));
    return value();
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& e) override {
    if (dynamic_cast<const json::parse_error*>(&e) == nullptr)
      fail(Exit::data, "{}, a number is out of range", source_);
    size_t before = std::min(byte > 0 ? byte - 1 : 0, text_.size());
    fail(Exit::data, "{}, not JSON at byte {}, line {}{}", source_, byte,
         1 + std::count(text_.begin(), text_.begin() + before, '\n'), extra_comma(before));
  }

 private:
  /// Returns `: a comma before }`, if that is the mistake: editors and other formats allow it.
  std::string extra_comma(size_t at) const {
    size_t last = text_.substr(0, at).find_last_not_of(" \t\r\n");
    bool closes = at < text_.size() && (text_[at] == '}' || text_[at] == ']');
    bool extra = closes && last != text_.npos && text_[last] == ',';
    return extra ? fmt::format(": a comma before {}", text_[at]) : "";
  }
  bool value() const {
    check_input(std::ssize(keys_) <= deepest_, Exit::data, "{}, nested deeper than {}", source_,
                deepest_);
    return true;
  }
  bool open() {
    value();
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& source_;
  int deepest_;
  std::vector<std::set<std::string>> keys_;  ///< one set for each open object; none for arrays
};

json parse(std::string_view text, const std::string& source, int deepest) {
  // The parser takes a zero byte for the end of the text, and skips a byte order mark.
  check_input(text.starts_with('{'), Exit::data, "{} does not start with an open brace", source);
  check_input(text.find('\0') == text.npos, Exit::data, "{} holds a zero byte", source);
  Check check(text, source, deepest);
  json::sax_parse(text, &check);
  return json::parse(text);
}

}  // namespace

std::string quoted(std::string_view text) try {
  return json(text).dump();
} catch (const json::exception&) {
  fail(Exit::internal, "json: {} is not UTF-8", printable(std::string(text)));
}

bool is_utf8(std::string_view text) try {
  return !json(text).dump().empty();
} catch (const json::exception&) {
  return false;
}

struct JsonReader::Document {
  std::string source;
  json root;
};

JsonReader::JsonReader(std::string_view text, std::string source, std::string what, int deepest)
    : what_(std::move(what)) {
  json root = parse(text, source, deepest);
  document_ = std::make_shared<Document>(Document{std::move(source), std::move(root)});
  value_ = &document_->root;
}

void JsonReader::require(bool ok, const std::string& otherwise) const {
  check_input(ok, Exit::data, "{}, {} {}", document_->source, what_, otherwise);
}

JsonReader JsonReader::inner(const json& value, const std::string& name) const {
  JsonReader r = *this;
  r.value_ = &value;
  r.what_ = name + " of " + what_;
  return r;
}

bool JsonReader::has(const char* key) const { return value_->is_object() && value_->contains(key); }

JsonReader JsonReader::at(const char* key) const {
  require(has(key), fmt::format("has no {}", key));
  return inner(value_->at(key), key);
}

uint64_t JsonReader::number(uint64_t limit) const {
  bool fits = value_->is_number_unsigned() && value_->get<uint64_t>() <= limit;
  if (!fits)
    require(false, fmt::format("is not a number from 0 to {}: {}", limit, printable(literal())));
  return value_->get<uint64_t>();
}

double JsonReader::real() const {
  require(value_->is_number(), "is not a number");
  return value_->get<double>();
}

bool JsonReader::is_text() const { return value_->is_string(); }
bool JsonReader::is_null() const { return value_->is_null(); }

bool JsonReader::flag() const {
  require(value_->is_boolean(), "is not true or false");
  return value_->get<bool>();
}

bool JsonReader::is_object() const { return value_->is_object(); }

std::string JsonReader::literal() const { return value_->dump(); }

std::string JsonReader::text() const {
  require(value_->is_string(), "is not a text");
  return value_->get<std::string>();
}

std::vector<JsonReader> JsonReader::elements(size_t at_most) const {
  require(value_->is_array() && value_->size() <= at_most,
          fmt::format("is not an array of at most {}", at_most));
  std::vector<JsonReader> all;
  for (const json& e : *value_) all.push_back(inner(e, fmt::format("element {}", all.size())));
  return all;
}

std::vector<int64_t> JsonReader::sizes(size_t at_most) const {
  return transformed(elements(at_most), &JsonReader::size);
}

std::map<std::string, JsonReader> JsonReader::members() const {
  require(value_->is_object(), "is not an object");
  std::map<std::string, JsonReader> all;
  for (const auto& [key, e] : value_->items())
    all.emplace(key, inner(e, key.empty() ? "\"\"" : printable(key)));
  return all;
}

}  // namespace triax::nn
