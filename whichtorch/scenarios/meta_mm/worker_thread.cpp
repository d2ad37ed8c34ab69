// Run one operator in a thread of its own while the caller, which holds the GIL or not, waits for it.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace {

using Operator = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

at::Tensor call(const std::string& op, const at::Tensor& left, const at::Tensor& right) {
  static const std::map<std::string, Operator> operators = {
      {"mm", [](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); }},
      {"matmul", [](const at::Tensor& a, const at::Tensor& b) { return at::matmul(a, b); }},
      {"linear", [](const at::Tensor& a, const at::Tensor& b) { return at::linear(a, b); }},
      {"add", [](const at::Tensor& a, const at::Tensor& b) { return at::add(a, b); }},
      {"empty", [](const at::Tensor& a, const at::Tensor&) { return at::empty(a.sizes(), a.options()); }},
  };
  return operators.at(op)(left, right);
}

at::Tensor call_guarded(
    const std::string& op, const std::string& guard, const at::Tensor& left, const at::Tensor& right) {
  if (guard == "no_grad") {
    at::NoGradGuard no_grad;
    return call(op, left, right);
  }
  if (guard == "inference") {
    c10::InferenceMode inference;
    return call(op, left, right);
  }
  if (guard == "below_autograd") {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call(op, left, right);
  }
  TORCH_CHECK(guard == "none", "no guard is called ", guard);
  return call(op, left, right);
}

at::Tensor run_in_thread(
    const std::string& op,
    const std::string& guard,
    bool hold_gil,
    const at::Tensor& left,
    const at::Tensor& right) {
  at::Tensor result;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      result = call_guarded(op, guard, left, right);
    } catch (...) {
      error = std::current_exception();
    }
  };
  if (hold_gil) {
    std::thread worker(work);
    worker.join();
  } else {
    pybind11::gil_scoped_release released;
    std::thread worker(work);
    worker.join();
  }
  if (error) {
    std::rethrow_exception(error);
  }
  return result;
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("run_in_thread", &run_in_thread, "Return the operator's result, computed in another thread.");
}
