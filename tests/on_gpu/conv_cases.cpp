#include "tests/on_gpu/on.h"
#include "tests/support/windows.h"

namespace triax::test {
namespace {

/// With channels in multiples of 8, for which cuDNN has the most kernels.
std::vector<ConvCase> whole_packs() {
  return {{{4, 8, 8, 16}, 24, {0, 3, 1, 1}, {0, 3, 1, 1}},
          {{4, 8, 8, 16}, 32, {0, 3, 2, 1}, {0, 3, 2, 1}},
          {{4, 8, 8, 16}, 32, {0, 1, 2}, {0, 1, 2}},
          {{3, 9, 7, 8}, 8, {0, 3, 1, 2, 2}, {0, 3, 1, 2, 2}},
          {{2, 8, 9, 8}, 8, {0, 3, 1, 1, 2}, {0, 2, 2, 1, 3}},
          {{2, 8, 8, 32}, 32, {0, 3, 1, 1}, {0, 3, 1, 1}, 4},
          {{2, 8, 8, 16}, 16, {0, 3, 1, 1}, {0, 3, 1, 1}, 16}};
}

std::vector<ConvCase> all_convolutions() {
  std::vector<ConvCase> all = conv_cases();
  for (const ConvCase& c : whole_packs()) all.push_back(c);
  return all;
}

Conv2d convolution_of(On& on, const ConvCase& c) {
  return {on.in(c.x(), 1), on.in(c.weight(), 2, 0.2), c.windows(), c.groups};
}

void convolutions(On& on) {
  for (const ConvCase& c : all_convolutions()) {
    Conv2d conv = convolution_of(on, c);
    on.backend.conv2d(conv, on.out(c.y()));
    on.backend.conv2d_backward_input(conv, on.in(c.y(), 3), on.out(c.x()));
  }
}

// Sums over all images, in the accumulator dtype.
void weight_gradients(On& on) {
  for (const ConvCase& c : all_convolutions())
    for (Write write : {Write::set, Write::add})
      on.backend.conv2d_backward_weight(convolution_of(on, c), on.in(c.y(), 3),
                                        on.out(c.weight(), on.sums), write);
}

// At addresses that cuDNN does not take.
void unaligned_convolutions(On& on) {
  ConvCase c = whole_packs()[0];
  on.backend.conv2d(convolution_of(on, c), on.out(c.y(), on.dtype, 1));
  on.backend.conv2d_backward_weight(convolution_of(on, c), on.in(c.y(), 3),
                                    on.out(c.weight(), on.sums, 1), Write::add);
}

}  // namespace

std::vector<Case> convolution_cases() {
  return {{"conv2d", 10, convolutions},
          {"conv2d_weight_gradient", 80, weight_gradients},
          {"conv2d_unaligned", 10, unaligned_convolutions}};
}

}  // namespace triax::test
