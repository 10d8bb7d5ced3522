#pragma once
#include <functional>
#include <vector>

#include "triax/nn/batch.h"
#include "triax/nn/module.h"

namespace triax::parallel {

/// Computes one device's part of a batch: one value per sample along dim 0, or (the sum of a loss,
/// say) one element.
using Forward = std::function<Tensor(const nn::Batch& part)>;

/// Runs `forward` on several devices of one process, as PyTorch's nn.DataParallel: scatters the
/// samples of `batch`, copies the weights of `model`, which are on the first device, to the others,
/// runs it with them on each part, and gathers the results on the first device, along dim 0. Part i
/// has ceil(samples / devices) samples, the last ones fewer; devices without any do nothing.
///
///   std::vector<Device> gpus{device_named("cuda:0"), device_named("cuda:1")};
///   Tensor losses = scatter_gather(model, gpus, batch, [&](auto& part) { return model(part); });
///   backward(sum(losses) / double(batch.input.size(0)));
///
/// Gradients come back to the weights of `model`, those of other devices in the dtype of the
/// weights, and what buffers accumulate (batch norm) is added up there: each part counts alike,
/// whatever its samples; a batch norm sees the samples of its part. Dropout masks are those of the
/// whole batch. One thread queues the work: GPUs compute at the same time, a CPU that is named
/// twice does not. With ranks (DataParallel, a Trainer) weights and gradients are not copied from
/// and to one device in every step, and the update is shared: that is faster.
///
/// `forward` reads weights from the parameters of `model` while it runs, and not later: it may not
/// recompute(). Throws Error 70 for no devices, a batch without samples or a model elsewhere.
Tensor scatter_gather(nn::Module& model, const std::vector<Device>& devices, const nn::Batch& batch,
                      const Forward& forward);

}  // namespace triax::parallel
