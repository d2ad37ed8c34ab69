"""Names of native functions for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichtorch.matrix.diagnosis.stacks import display

NAMES = {
    "at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)": "at::_ops::mm::redispatch",
    "torch::autograd::VariableType::(anonymous namespace)::mm": "torch::autograd::VariableType::mm",
    "c10::impl::BoxedKernelWrapper<at::Tensor (at::Tensor const&, at::Tensor const&), void>::call(c10::BoxedKernel "
    "const&, c10::OperatorHandle const&, c10::DispatchKeySet)": "c10::impl::BoxedKernelWrapper::call",
    "torch::impl::dispatch::PythonKernelHolder::operator()(c10::OperatorHandle const&)": (
        "torch::impl::dispatch::PythonKernelHolder::operator()"
    ),
    "run(at::Tensor, bool)::{lambda()#1}::operator()() const": "run::{lambda#1}::operator()",
    "void std::__invoke_impl<void, run(bool)::{lambda()#1}>(std::__invoke_other)": "std::__invoke_impl",
    "std::__invoke_result<run()::{lambda()#1}>::type std::__invoke<run()::{lambda()#1}>(int&&)": "std::__invoke",
    "at::Tensor pybind11::detail::argument_loader<at::Tensor>::call_impl<at::Tensor>(int) &&": (
        "pybind11::detail::argument_loader::call_impl"
    ),
    "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)": "std::operator<<",
    "operator new(unsigned long)": "operator new",
    "c10::IValue::operator bool() const": "c10::IValue::operator bool",
    "pthread_cond_timedwait@@GLIBC_2.3.2": "pthread_cond_timedwait",
    "__new_sem_wait_slow64.constprop.0": "__new_sem_wait_slow64",
    "take_gil": "take_gil",
    "0x7f680f8a3f16": "???",
    "??": "???",
}


@pytest.mark.parametrize(("symbol", "expected"), NAMES.items(), ids=NAMES.values())
def test_display(symbol: str, expected: str) -> None:
    """Templates, parameters, return types, versions and anonymous namespaces are cut; what is called is left."""
    assert display(symbol) == expected


@given(st.text(alphabet="ab:<>(){} &-operator,#~0", max_size=60))
def test_anything_has_a_name(symbol: str) -> None:
    """Brackets that do not match, or nothing at all, give some name and no exception."""
    assert display(symbol)
