#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/io/json.h"
#include "parallel/program/deepspeed/reader.h"

namespace triax::parallel {
namespace {

using nlohmann::json;

/// The object that a text stands for; none if it is refused.
std::optional<json> read(const std::string& text) {
  try {
    nn::JsonReader object(json_of_hjson(text, "t"), "t", "the text", 16);
    return json::parse(object.literal());
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(Exit::data)) << e.what();
    return {};
  }
}

// tests/fixtures/make_hjson.py
TEST(Hjson, IsReadAsThePythonPackageReadsIt) {
  std::ifstream file(TRIAX_TEST_FIXTURES "/hjson.jsonl");
  int cases = 0, objects = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    json expected = json::parse(line);
    auto text = expected["hjson"].get<std::string>();
    auto object = read(text);
    EXPECT_EQ(object.has_value(), expected.contains("json")) << text;
    if (!object || !expected.contains("json")) continue;
    EXPECT_EQ(*object, expected["json"]) << text;
    ++objects;
  }
  EXPECT_GE(cases, 200);
  EXPECT_GE(objects, 80);
}

TEST(Hjson, KeepsValuesOnTheirLines) {
  EXPECT_EQ(json_of_hjson("// one\n{\n  a: 1 # two\n\n  b: [x\n  2]\n}", "t"),
            "{\n\n\"a\":1\n\n,\"b\":[\"x\"\n,2]\n}");
}

}  // namespace
}  // namespace triax::parallel
