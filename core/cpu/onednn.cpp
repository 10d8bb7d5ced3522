#include "core/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/cpu/scratch.h"

namespace triax::host::onednn {
namespace {

using Memory = dnnl::memory;
using Key = std::vector<int64_t>;

Memory::data_type type_of(DType t) {
  return t == f32    ? Memory::data_type::f32
         : t == bf16 ? Memory::data_type::bf16
         : t == f16  ? Memory::data_type::f16
                     : Memory::data_type::undef;
}

/// The library plans for omp_get_max_threads() and trusts that it gets them: in a parallel region,
/// or with OMP_THREAD_LIMIT or OMP_DYNAMIC, it would leave out the work of the missing threads or
/// wait for them without end. While this lives, max_threads is what there is to get.
class Threads {
 public:
  Threads() {
    omp_set_dynamic(0);
    omp_set_num_threads(omp_in_parallel() ? 1 : std::min(before_, omp_get_thread_limit()));
  }
  ~Threads() {
    omp_set_num_threads(before_);
    omp_set_dynamic(dynamic_before_);
  }
  Threads(const Threads&) = delete;

 private:
  int before_ = omp_get_max_threads(), dynamic_before_ = omp_get_dynamic();
};

/// A prepared product and the shapes of its arguments.
struct Prepared {
  Memory::desc a, b, c, bias, scratch;
  dnnl::matmul run;  // empty if the library cannot
  bool usable = false;
};

const dnnl::engine& engine() {
  thread_local dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

/// An expanded dim (stride 0) is one that the library stretches.
Memory::desc describe_matrix(const Tensor& x) {
  Memory::dims sizes, strides;
  for (int d = 0; d < x.rank(); ++d) {
    bool stretched = d < x.rank() - 2 && x.strides()[d] == 0;
    sizes.push_back(stretched ? 1 : x.size(d));
    strides.push_back(stretched || x.size(d) == 1 ? 1 : x.strides()[d]);
  }
  // Strides of dims of size 1 mean nothing; these keep the order of the dims plain.
  for (int d = x.rank() - 1; d >= 0; --d)
    if (sizes[size_t(d)] == 1)
      strides[size_t(d)] = d + 1 < x.rank() ? sizes[size_t(d + 1)] * strides[size_t(d + 1)] : 1;
  return {sizes, type_of(x.dtype()), strides};
}

const Tensor& result(const Matmul& p) { return p.before.defined() ? p.before : p.c; }

Prepared prepare(const Matmul& p) {
  Prepared r;
  r.a = describe_matrix(p.a);
  r.b = describe_matrix(p.b);
  r.c = describe_matrix(result(p));
  if (p.bias.defined()) {
    Memory::dims sizes(size_t(p.c.rank()), 1), strides(size_t(p.c.rank()), p.bias.size(0));
    sizes.back() = p.bias.size(0);
    strides.back() = 1;
    r.bias = Memory::desc(sizes, type_of(p.bias.dtype()), strides);
  }
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops after;
  if (p.write == Write::add) after.append_sum(1.f);
  attributes.set_post_ops(after);
  try {
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc d(engine(), r.a, r.b, r.bias, r.c, attributes);
#else
    dnnl::matmul::primitive_desc d(dnnl::matmul::desc(r.a, r.b, r.bias, r.c), attributes, engine());
#endif
    r.scratch = d.scratchpad_desc();
    r.run = dnnl::matmul(d);
    r.usable = true;
  } catch (const dnnl::error&) {
    // Not implemented for these types or strides on this machine: remembered as such.
  }
  return r;
}

/// Everything a prepared product depends on; the library plans for a number of threads too.
Key key_of(const Matmul& p) {
  Key key{omp_get_max_threads(), int64_t(p.a.dtype()), int64_t(result(p).dtype()), int64_t(p.write),
          p.bias.defined()};
  for (const Tensor* x : {&p.a, &p.b, &result(p)}) {
    key.insert(key.end(), x->shape().begin(), x->shape().end());
    key.insert(key.end(), x->strides().begin(), x->strides().end());
  }
  return key;
}

const Prepared& prepared(const Matmul& p) {
  constexpr size_t kept = 1024;
  thread_local std::map<Key, Prepared> all;
  Key key = key_of(p);
  auto found = all.find(key);
  if (found != all.end()) return found->second;
  if (all.size() >= kept) all.clear();
  return all.emplace(std::move(key), prepare(p)).first->second;
}

}  // namespace

bool pays(DType dtype) {
#if defined(__x86_64__)
  static const int isa = int(dnnl::get_effective_cpu_isa());
  if (dtype == bf16) return (isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
#if DNNL_VERSION_MAJOR >= 3
  if (dtype == f16)
    return (isa & dnnl_cpu_isa_avx512_core_amx_fp16) == dnnl_cpu_isa_avx512_core_amx_fp16;
#endif
#endif
  return false;
}

bool matmul(const Matmul& p) {
  if (p.c.numel() == 0 || p.a.numel() == 0 || p.a.dtype() == f64) return false;
  if (p.bias.defined() && p.bias.strides()[0] != 1) return false;
  Threads threads;
  const Prepared& r = prepared(p);
  if (!r.usable) return false;
  Scratch<char> room(int64_t(r.scratch.get_size()));
  std::unordered_map<int, Memory> arguments{
      {DNNL_ARG_SRC, Memory(r.a, engine(), p.a.data())},
      {DNNL_ARG_WEIGHTS, Memory(r.b, engine(), p.b.data())},
      {DNNL_ARG_DST, Memory(r.c, engine(), result(p).data())},
      {DNNL_ARG_SCRATCHPAD, Memory(r.scratch, engine(), room.data())}};
  if (p.bias.defined()) arguments.emplace(DNNL_ARG_BIAS, Memory(r.bias, engine(), p.bias.data()));
  r.run.execute(stream(), arguments);
  return true;
}

}  // namespace triax::host::onednn
