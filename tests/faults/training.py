"""Faults of the training step: clipping, the loss scale, steps that are skipped, and resuming."""

from fault import Unseen

STEPPER, RUN = (f"examples/minigpt/{name}.cpp" for name in ("stepper", "run_directory"))
EVERYWHERE = "--mesh 2x1x1"

UNSEEN = [
    Unseen("gradients_below_the_limit_scaled_up", "core/update.h",
           [("limit > 0 && factor < 1 ? factor : 1.", "limit > 0 ? factor : 1.")],
           "one rank does it too",
           EVERYWHERE, "test_optim", "OptimTest.Clipping"),
    Unseen("norm_logged_after_clipping", STEPPER,
           [("  check_finite(r, config_, scaler_);\n",
             "  check_finite(r, config_, scaler_);\n"
             "  r.grad_norm *= optim::clip_factor(r.grad_norm, config_.clip);\n")],
           "parity has the norm from elsewhere",
           EVERYWHERE, "test_examples", "Precision.NormIsLogged*"),
    Unseen("skipped_step_moves_the_weights", "core/update.h",
           [("finite && !halted ? 1. : 0.", "1.")],
           "no step of a run is skipped",
           EVERYWHERE, "test_examples", "Precision.SkippedSteps*"),
    Unseen("loss_scale_falls_too_fast", "optim/loss_scaler.cpp",
           [("std::max(scale_ / 2, options_.minimum)", "std::max(scale_ / 4, options_.minimum)")],
           "parity runs in fp32",
           EVERYWHERE, "test_optim", "LossScaler.As*"),
    Unseen("loss_scale_not_resumed", RUN,
           [('  scaler.restore(checkpoint->state("loss_scaler"));\n', "")],
           "parity does not resume",
           EVERYWHERE, "test_examples", "Resume.*"),
    Unseen("step_of_the_optimizer_not_resumed", RUN,
           [('  adam.set_steps(std::stoll(checkpoint->state("updates")));\n', "")],
           "parity does not resume",
           EVERYWHERE, "test_examples", "Resume.*"),
    Unseen("skipped_steps_resumed_as_updates", RUN,
           [('std::stoll(checkpoint->state("updates"))', "checkpoint->step()")],
           "parity does not resume",
           EVERYWHERE, "test_examples", "Resume.*"),
    Unseen("weight_is_not_the_cast_of_its_master", "core/cpu/optimizer.cpp",
           [("    v[i] = vi;\n    w[i] = wi;\n    if constexpr (!__is_same(T, A)) cast[i] = convert<T>(wi);",
             "    v[i] = vi;\n    if constexpr (!__is_same(T, A)) cast[i] = convert<T>(w[i]);\n    w[i] = wi;")],
           "parity runs in fp32",
           EVERYWHERE, "test_examples", "Precision.WeightsAreTheCast*"),
]
