#include <algorithm>
#include <cmath>
#include <set>

#include "triax/core/check.h"
#include "triax/optim/schedule.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel {
namespace {

double largest(const Wholes& all) {
  double top = 0;
  for (auto& [name, whole] : all)
    for (float v : whole.values) top = std::max(top, std::abs(double(v)));
  return top;
}

/// Returns the best factor that makes `other` of `right`.
double factor_of(const Assembled& right, const Assembled& other) {
  double both = 0, square = 0;
  for (size_t i = 0; i < right.values.size(); ++i) {
    both += double(right.values[i]) * other.values[i];
    square += double(right.values[i]) * right.values[i];
  }
  return square > 0 ? both / square : 1;
}

/// Returns the likely cause: a factor that is the size of an axis, or one over it, tells it.
std::string guess(double factor, const MeshShape& mesh) {
  auto near = [&](double x) { return std::abs(factor - x) < 1e-2 * x; };
  auto sums = mesh.axes();
  for (Cuts cuts : {Cuts::samples, Cuts::samples | Cuts::rows}) {
    std::vector<std::string> names;
    for (const Axis& a : mesh.axes())
      if (any(a.cuts, cuts) && a.size > 1) names.push_back(a.name);
    std::string product = join(names, " x ");
    if (names.size() > 1 && sums.back().name != product)
      sums.push_back({product, cuts, mesh.ranks_along(cuts)});
  }
  for (const Axis& axis : sums) {
    int size = axis.size;
    if (size == 1) continue;
    std::vector<std::string> axes;
    for (const Axis& a : sums)
      if (a.size == size) axes.push_back(a.name);
    std::string which = join(axes, " or ");
    if (near(double(size)))
      return fmt::format("a factor of {}: summed once too often, or not averaged, over {}", size,
                         which);
    if (near(1 / double(size)))
      return fmt::format("a factor of 1/{}: averaged once too often, or not summed, over {}", size,
                         which);
  }
  if (std::abs(factor) < 1e-3) return "it is missing altogether";
  if (std::abs(factor - 1) > 0.02)
    return fmt::format(
        "a factor of about {:.3g}: a part of the sum is missing or counted twice, or "
        "it depends on what else is in the micro-batch (--same-micro-batches)",
        factor);
  return "";
}

/// Returns the names in `all` of a parameter's value and of its optimizer state, `name/m`.
std::vector<std::string> names_of(const Wholes& all, const std::string& parameter) {
  std::vector<std::string> names;
  if (all.contains(parameter)) names.push_back(parameter);
  std::string prefix = parameter + "/";
  for (auto at = all.lower_bound(prefix); at != all.end() && at->first.starts_with(prefix); ++at)
    names.push_back(at->first);
  return names;
}

const Assembled& find(const Wholes& all, const std::string& name) {
  static const Assembled nothing;
  auto found = all.find(name);
  return found == all.end() ? nothing : found->second;
}

/// Compares two traces, step by step.
class Runs {
 public:
  Runs(const Trace& reference, const Trace& run, const MeshShape& mesh, const ParityBounds& bounds)
      : reference_(reference), run_(run), mesh_(mesh), bounds_(bounds) {}

  std::optional<Difference> first() {
    if (auto d = state(reference_.initial, run_.initial)) return d;
    while (step_ < std::ssize(reference_.steps)) {
      auto s = size_t(step_++);
      if (auto d = step(reference_.steps[s], run_.steps[s])) return d;
    }
    return {};
  }

 private:
  std::optional<Difference> step(const TraceStep& right, const TraceStep& other) {
    if (right.skipped != other.skipped)
      return Difference{step_, "skipped step", "",
                        fmt::format("{}, expected {}", other.skipped, right.skipped), ""};
    if (right.skipped) return state(right.state, other.state);
    auto within = [&](double bound) { return drifted() ? INFINITY : bound; };
    for (auto& name : reference_.layers) {
      if (!right.activations.contains(name)) continue;  // the loss
      auto& whole = right.activations.at(name);
      double bound = within(bounds_.activation * largest({{name, whole}}));
      if (auto d = tensor("activation", name, whole, find(other.activations, name),
                          [=](size_t) { return bound; }))
        return d;
    }
    if (auto d = number("loss", right.loss, other.loss, bounds_.loss)) return d;
    if (mesh_.ranks_along(Cuts::weights) > 1) return state(right.state, other.state);
    double bound = bounds_.gradient * largest(right.gradients);
    auto& names = reference_.parameters;
    for (auto name = names.rbegin(); name != names.rend(); ++name)
      if (auto d = tensor("gradient", *name, find(right.gradients, *name),
                          find(other.gradients, *name), [&](size_t) { return within(bound); }))
        return d;
    if (auto d = numbers("gradient norm", right.norms[0], other.norms,
                         drifted() ? bounds_.drift : bounds_.norm))
      return d;
    note_noise(right.gradients, other.gradients, bound);
    if (bounds_.lion.beta1 > 0 && step_ > 1) note_lost_signs(right, other, bound);
    return state(right.state, other.state);
  }

  bool drifted() const { return bounds_.drift > 0 && step_ > 1; }

  /// Compares a tensor with another, within `bound`.
  std::optional<Difference> tensor(const char* what, const std::string& name,
                                   const Assembled& right, const Assembled& other,
                                   const std::function<double(size_t)>& bound) {
    Difference d{step_, what, name, "", ""};
    if (other.values.size() != right.values.size() || other.missing() > 0) {
      d.how_much =
          fmt::format("{} of its {} elements are on no rank",
                      other.values.empty() ? int64_t(right.values.size()) : other.missing(),
                      right.values.size());
      return d;
    }
    if (!other.conflict.empty()) {
      d.what += " on replicas";
      d.how_much = "ranks that hold the same differ at " + other.conflict;
      return d;
    }
    size_t worst = 0;
    double most = -1;  // the largest excess over a bound
    for (size_t i = 0; i < right.values.size(); ++i) {
      if (right.values[i] == other.values[i]) continue;  // also infinities
      double gap = std::abs(double(right.values[i]) - other.values[i]) - bound(i);
      if (!(gap <= most)) most = gap, worst = i;
      if (std::isnan(gap)) break;
    }
    if (most <= 0) return {};
    d.how_much = fmt::format("element {} is {}, expected {} within {:.1e}", worst,
                             other.values[worst], right.values[worst], bound(worst));
    d.guess = guess(factor_of(right, other), mesh_);
    return d;
  }

  std::optional<Difference> number(const char* what, double right, double other, double bound) {
    if (std::abs(right - other) <= bound * std::abs(right)) return {};
    return Difference{step_, what, "",
                      fmt::format("{1:.{0}g}, expected {2:.{0}g} within {3:.0e} of it",
                                  bound > 0 ? 9 : 17, other, right, bound),
                      guess(other / right, mesh_)};
  }

  /// Compares a number that every rank has for itself.
  std::optional<Difference> numbers(const char* what, double right,
                                    const std::vector<double>& others, double bound) {
    auto [low, high] = std::minmax_element(others.begin(), others.end());
    if (*low == *high) return number(what, right, *low, bound);
    return Difference{step_, what + std::string(" on replicas"), "",
                      fmt::format("from {:.9g} to {:.9g} over the ranks, expected {:.9g} on all",
                                  *low, *high, right),
                      ""};
  }

  /// Notes elements whose gradient was rounding in some step so far, in one of both.
  void note_noise(const Wholes& gradients, const Wholes& others, double bound) {
    for (auto& [name, whole] : gradients) {
      auto& other = find(others, name).values;
      for (size_t i = 0; i < whole.values.size(); ++i)
        if ((whole.values[i] != 0 || other[i] != 0) &&
            std::min(std::abs(double(whole.values[i])), std::abs(double(other[i]))) <= bound)
          noisy_[name].insert(i);
    }
  }

  /// Notes elements whose sign rounding decides: Lion takes that of beta1 m + (1 - beta1) g, of the
  /// moment before the step and the clipped gradient, and there these cancel. A led run has the
  /// reference's moments.
  void note_lost_signs(const TraceStep& right, const TraceStep& other, double gradient_bound) {
    auto [beta1, clip] = bounds_.lion;
    double fresh = (1 - beta1) * optim::clip_factor(right.norms[0], clip) / right.loss_scale;
    const Wholes& before = reference_.steps[size_t(step_) - 2].state;
    double top = 0;
    for (auto& [name, whole] : before)
      if (name.ends_with("/m")) top = std::max(top, largest({{name, whole}}));
    double moved = bounds_.drift > 0 ? 2 * bounds_.gradient * top : 0;
    double bound = beta1 * moved + fresh * gradient_bound;
    for (auto& [name, whole] : right.gradients) {
      auto &m = find(before, name + "/m").values, &g = whole.values;
      auto& g_other = find(other.gradients, name).values;
      for (size_t i = 0; i < m.size(); ++i)
        if ((m[i] != 0 || g[i] != 0 || g_other[i] != 0) &&
            std::abs(beta1 * m[i] + fresh * g[i]) <= bound)
          noisy_[name].insert(i);
    }
  }

  std::optional<Difference> state(const Wholes& right, const Wholes& other) {
    double extra = step_ == 0 ? 0 : bounds_.update;
    // The moments of one parameter alone may be what cancelling left of them.
    auto kind_of = [](const std::string& name) { return name.substr(name.rfind('/') + 1); };
    std::map<std::string, double> moments;
    for (auto& [name, whole] : right) {
      double& top = moments[kind_of(name)];
      top = std::max(top, largest({{name, whole}}));
    }
    for (auto& parameter : reference_.parameters)
      for (auto& name : names_of(right, parameter)) {
        auto& whole = right.at(name);
        bool weight = name == parameter || name.ends_with("/master") || name.ends_with("/average");
        double top = weight ? bounds_.weight * largest({{name, whole}})
                            : bounds_.gradient * moments[kind_of(name)];
        auto& noise = noisy_[parameter];
        bool by_muon = bounds_.muon > 0 && right.contains(parameter + "/velocity");
        auto bound = [&](size_t i) {
          if (!weight) return drifted() ? INFINITY : 2 * top;
          return top + (by_muon ? std::max(extra, bounds_.muon) : extra) +
                 (noise.contains(i) ? bounds_.noise : 0);
        };
        if (auto d = tensor(weight ? "weight" : "moment", name, whole, find(other, name), bound))
          return d;
      }
    for (auto& name : reference_.buffers) {
      double bound = bounds_.activation * largest({{name, right.at(name)}}) + extra;
      if (auto d = tensor("buffer", name, right.at(name), find(other, name),
                          [&](size_t) { return drifted() ? INFINITY : bound; }))
        return d;
    }
    return {};
  }

  const Trace &reference_, &run_;
  const MeshShape& mesh_;
  const ParityBounds& bounds_;
  int64_t step_ = 0;  // from 1; 0: before the first
  std::map<std::string, std::set<size_t>> noisy_;
};

}  // namespace

std::optional<Difference> first_difference(const Trace& reference, const Trace& run,
                                           const MeshShape& mesh, const ParityBounds& bounds) {
  return Runs(reference, run, mesh, bounds).first();
}

}  // namespace triax::parallel
