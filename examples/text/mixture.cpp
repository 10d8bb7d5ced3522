#include "examples/text/mixture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::text {

Mixture::Mixture(std::vector<Part> parts) : parts_(std::move(parts)) {
  check(!parts_.empty(), "mixture: no parts; expected at least one");
  double shares = 0, all = 0;
  for (auto& p : parts_) shares += p.share;
  for (auto& p : parts_) all = std::max(all, double(p.samples->count()) * shares / p.share);
  int64_t end = 0;
  for (auto& p : parts_) {
    end += std::max(p.samples->count(), int64_t(std::llround(all * p.share / shares)));
    ends_.push_back(end);
  }
}

std::shared_ptr<const Mixture> Mixture::joined(
    const std::vector<std::shared_ptr<const nn::Samples>>& sets) {
  std::vector<Part> parts;
  for (auto& set : sets) parts.push_back({set, double(set->count())});
  return std::make_shared<Mixture>(std::move(parts));
}

Mixture::Place Mixture::at(int64_t index) const {
  check(index >= -1 && index < count(), "mixture: sample {}; expected 0 to {}, or -1 for a blank",
        index, count() - 1);
  if (index < 0) return {*parts_[0].samples, index};
  auto i = size_t(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
  int64_t first = i == 0 ? 0 : ends_[i - 1];
  return {*parts_[i].samples, (index - first) % parts_[i].samples->count()};
}

nn::Batch Mixture::batch(std::span<const int64_t> indices) const {
  nn::Batch all;
  auto room = [&](const Tensor& row) {
    Shape shape = row.shape();
    shape[0] = std::ssize(indices);
    return empty(shape, row.dtype(), cpu);
  };
  for (size_t k = 0; k < indices.size(); ++k) {
    auto [samples, index] = at(indices[k]);
    nn::Batch one = samples.batch({&index, 1});
    if (k == 0) all = nn::mapped(one, room);
    Tensors from = nn::tensors(one), to = nn::tensors(all);
    check(from.size() == to.size(), "mixture: samples of {} and of {} tensors", to.size(),
          from.size());
    for (size_t i = 0; i < to.size(); ++i) copy_(to[i].narrow(0, int64_t(k), 1), from[i]);
  }
  return all;
}

double Mixture::weight(int64_t index) const {
  auto [samples, inside] = at(index);
  return samples.weight(inside);
}

std::string Mixture::identity() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < parts_.size(); ++i)
    all.push_back(fmt::format("{} of [{}]", ends_[i] - (i == 0 ? 0 : ends_[i - 1]),
                              parts_[i].samples->identity()));
  return join(all, " + ");
}

namespace {

/// Throws Error 78 if there are commas between paths of which one exists.
void check_no_list(const std::string& data) {
  std::vector<std::string> paths = parts_of(data, ','), missing;
  for (std::string& path : paths) {
    path.erase(0, path.find_first_not_of(' '));
    if (!disk().exists(path)) missing.push_back(path);
  }
  if (missing.size() == paths.size()) return;
  std::string none =
      missing.empty() ? "" : fmt::format(" (there is no file {})", printable(missing[0]));
  for (auto& path : paths) path += fmt::format(":{:.3g}", 1.0 / double(paths.size()));
  fail(Exit::config, "data: `{}` are {} sources without shares{}\n  Give each its share: {}",
       printable(data), paths.size(), none, join(paths, ","));
}

/// Reads `PATH:SHARE`; none if it does not end with a number.
std::optional<DataSource> source_in(const std::string& text) {
  size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return {};
  DataSource source{text.substr(0, colon)};
  const char* end = text.data() + text.size();
  auto [last, error] = std::from_chars(text.data() + colon + 1, end, source.share);
  if (error == std::errc::invalid_argument || last != end) return {};
  check_input(error == std::errc() && source.share > 0 && std::isfinite(source.share), Exit::config,
              "data: the share of {} is {}; expected a number above 0", source.path,
              text.substr(colon + 1));
  return source;
}

}  // namespace

std::vector<DataSource> data_sources(const std::string& data) {
  if (disk().exists(data)) return {{data}};
  std::vector<DataSource> sources;
  std::string without_share;
  for (const std::string& part : parts_of(data, ','))
    if (auto source = source_in(part)) sources.push_back(*source);
    else if (without_share.empty()) without_share = fmt::format("`{}`", printable(part));
  if (sources.empty()) {
    check_no_list(data);
    return {{data}};  // a path
  }
  check_input(without_share.empty(), Exit::config,
              "data: {} of `{}` has no share; expected A:0.7,B:0.3, or a file of that name",
              without_share, printable(data));
  auto [least, most] = std::ranges::minmax(sources, {}, &DataSource::share);
  check_input(least.share >= most.share * 1e-9, Exit::config,
              "data: the share of {} is {}, that of {} {}; expected no more than 1e9 times as much",
              least.path, least.share, most.path, most.share);
  return sources;
}

}  // namespace triax::text
