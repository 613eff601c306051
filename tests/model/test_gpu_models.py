"""A GPU is of the model that people ask for, whatever its driver's name has around that."""

from __future__ import annotations

import pytest

from headgate.model.gpu_models import is_model

H100, A10, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA A10", "NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100", H100),
        ("h100", "H100"),
        ("H100 80GB", H100),
        ("h100-80gb", H100),
        (H100, H100),
        ("nvidia-h100-80gb-hbm3", H100),
        ("H100", "NVIDIA H100 NVL"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("rtx3090", RTX),
        ("RTX 3090 Ti", f"{RTX} Ti"),
        ("V100", "Tesla V100-SXM2-16GB"),
        ("MI300X", "AMD Instinct MI300X"),
    ],
)
def test_model_is_known_by_a_part_of_its_name(asked: str, name: str) -> None:
    assert is_model(asked, name)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100", "NVIDIA GH100"),
        ("H10", H100),
        ("A10", "NVIDIA A100-SXM4-80GB"),
        ("A10", "NVIDIA A10G"),
        ("RTX 3090", f"{RTX} Ti"),
        ("RTX 6000", "NVIDIA RTX 6000 Ada Generation"),
        ("H100 40GB", H100),
        ("80GB H100", H100),
        (H100, "H100"),
        ("H100", ""),
        ("", H100),
        ("--", H100),
    ],
)
def test_other_models_are_not_taken_for_it(asked: str, name: str) -> None:
    assert not is_model(asked, name)
