"""YAML that a parser gives up on is one sentence, as YAML that is none."""

from __future__ import annotations

import pytest

from rlinsight.baselines.config import load as load_gate
from rlinsight.errors import ConfigError
from rlinsight.runs.profile import load as load_run


@pytest.mark.parametrize("load", [load_gate, load_run])
@pytest.mark.parametrize("text", ["[" * 3000, "{a: " * 2000, f"a: {'9' * 5000}", "a: 2020-99-99"])
def test_yaml_too_deep_too_long_or_no_date_is_refused(tmp_path, load, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not YAML"):
        load(path)
