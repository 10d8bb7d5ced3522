// What two traces have in common, name by name.
#include <gtest/gtest.h>

#include "parallel/parity/parity.h"

namespace triax::parallel {
namespace {

Assembled whole(float value) { return {.values = {value}, .known = {true}, .conflict = {}}; }

// In the order of bytes `x.y` and `x.y/m` stand between `x` and `x/m`.
TEST(Compare, OptimizerStateOfANameThatBeginsAnother) {
  Trace reference{.parameters = {"x", "x.y"}};
  for (const char* name : {"x", "x/m", "x.y", "x.y/m"}) reference.initial[name] = whole(1);
  Trace run = reference;
  EXPECT_FALSE(first_difference(reference, run, {}, {}));
  run.initial["x/m"] = whole(2);
  auto d = first_difference(reference, run, {}, {});
  ASSERT_TRUE(d);
  EXPECT_EQ(d->what, "moment");
  EXPECT_EQ(d->name, "x/m");
}

}  // namespace
}  // namespace triax::parallel
