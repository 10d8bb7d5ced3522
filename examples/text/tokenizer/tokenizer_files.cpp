#include "examples/text/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <filesystem>

namespace triax::text {
namespace {

constexpr uint64_t largest = uint64_t{256} << 20;
constexpr const char* templates = "additional_chat_templates";  // a directory

void copy(const std::string& from, const std::string& to, const Files& files) {
  files.replace(to, files.read(from, largest));
}

}  // namespace

std::vector<std::string> tokenizer_files(const std::string& directory, const Files& files) {
  constexpr const char* known[] = {"vocab.json",
                                   "merges.txt",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "added_tokens.json",
                                   "chat_template.json",
                                   "chat_template.jinja",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "generation_config.json"};
  auto names = files.list(directory);
  std::erase_if(names, [&](auto& name) { return std::ranges::count(known, name) == 0; });
  return names;
}

std::string with_tokenizer_files(const std::string& directory) {
  if (directory.empty()) return {};
  for (auto& place : {directory, directory + "/" + tokenizer_folder}) {
    auto names = tokenizer_files(place);
    bool more = names != std::vector<std::string>{"tokenizer.json"} ||
                std::ranges::count(disk().list(place), "config.json") > 0;
    if (!names.empty() && more) return place;
  }
  return {};
}

std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to,
                                              const Files& files) {
  auto names = tokenizer_files(from, files);
  if (names.empty()) return names;
  if (files.is_directory(from + "/" + templates))
    for (auto& name : files.list(from + "/" + templates))
      if (name.ends_with(".jinja")) names.push_back(templates + ("/" + name));
  for (auto& name : names) {
    files.make_directory(parent_directory(to + "/" + name));
    copy(from + "/" + name, to + "/" + name, files);
  }
  return names;
}

std::vector<std::string> keep_tokenizer_files(const std::string& from, const std::string& run,
                                              const Files& files) {
  std::string to = run + "/" + tokenizer_folder;
  std::error_code absent;
  if (from.empty() || std::filesystem::equivalent(from, to, absent)) return {};
  auto names = copy_tokenizer_files(from, to, files);
  if (!names.empty() && std::ranges::count(files.list(from), "config.json") > 0)
    copy(from + "/config.json", to + "/config.json", files);
  return names;
}

}  // namespace triax::text
