#include "examples/text/mixture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/check.h"

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
  auto put = [&](Tensor& to, size_t k, const Tensor& row) {
    Shape shape = row.shape();
    shape[0] = std::ssize(indices);
    if (k == 0) to = empty(shape, row.dtype(), cpu);
    copy_(to.narrow(0, int64_t(k), 1), row);
  };
  for (size_t k = 0; k < indices.size(); ++k) {
    auto [samples, index] = at(indices[k]);
    nn::Batch one = samples.batch({&index, 1});
    put(all.input, k, one.input), put(all.target, k, one.target);
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

std::vector<DataSource> data_sources(const std::string& data) {
  std::error_code ignored;
  if (std::filesystem::exists(data, ignored)) return {{data}};
  std::vector<DataSource> sources;
  for (size_t at = 0; at <= data.size();) {
    size_t end = std::min(data.find(',', at), data.size()), colon = data.rfind(':', end);
    if (colon == data.npos || colon <= at || colon >= end) return {{data}};
    DataSource source{data.substr(at, colon - at)};
    auto [last, error] = std::from_chars(data.data() + colon + 1, data.data() + end, source.share);
    if (error != std::errc() || last != data.data() + end) return {{data}};
    check_input(source.share > 0 && std::isfinite(source.share), Exit::config,
                "data: the share of {} is {}; expected a number above 0", source.path,
                source.share);
    sources.push_back(source);
    at = end + 1;
  }
  return sources;
}

}  // namespace triax::text
