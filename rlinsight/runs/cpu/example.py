"""A model, a tokenizer and an arithmetic task for a first run, generated in about a second.

    python -m rlinsight.runs.cpu.example DEST

In a run's configuration `model: example` and `data: example` mean the same. Neither torch nor a
download is needed, and the same seed gives the same files.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rlinsight.runs.cpu import example_model, example_tokenizer

#: Mean response length of the untrained model: with a limit of 256 tokens 2 % of them reach it.
MEAN_LENGTH_TOKENS = 64.0
# Sums, and so the lengths asked for, are log-normal: a median of 40 and a tail of long ones.
_SUM_LOG_MEAN_AND_STD = (3.7, 0.8)
_SUM_MIN, _SUM_MAX = 4, 300


@dataclass(frozen=True)
class Example:
    """Where the generated parts lie."""

    model: Path
    train: Path
    val: Path
    reward: Path

    def model_overrides(self) -> list[str]:
        """Return the Hydra overrides that make verl use the model."""
        return [f"actor_rollout_ref.model.path={self.model}"]

    def data_overrides(self) -> list[str]:
        """Return the Hydra overrides that make verl use the task and its reward."""
        return [
            f"data.train_files={self.train}",
            f"data.val_files={self.val}",
            f"reward.custom_reward_function.path={self.reward}",
            "reward.custom_reward_function.name=compute_score",
        ]


def generate(
    dest: str | Path,
    *,
    seed: int = 0,
    train: int = 512,
    val: int = 32,
    size: str = "tiny",
    mean_length_tokens: float = MEAN_LENGTH_TOKENS,
    prompt_characters: int = 0,
) -> Example:
    """Write the example into the folder `dest` and return its parts, as absolute paths.

    `train` and `val` are numbers of prompts, `size` is one of `example_model.SHAPES`. A prompt
    shorter than `prompt_characters` begins with zeros. Files of an earlier call are replaced.
    """
    folder = Path(dest).resolve()
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    example_tokenizer.write(model)
    shape = example_model.SHAPES[size]
    example_model.write(model, seed=seed, mean_length_tokens=mean_length_tokens, shape=shape)
    sums = random.Random(seed)  # noqa: S311 - exercises, not secrets
    return Example(
        model=model,
        train=_write_task(folder / "train.parquet", sums, train, "train", prompt_characters),
        val=_write_task(folder / "val.parquet", sums, val, "val", prompt_characters),
        reward=Path(
            shutil.copy(Path(__file__).with_name("example_reward.py"), folder / "reward.py")
        ),
    )


def _write_task(path: Path, sums: random.Random, rows: int, split: str, width: int) -> Path:
    pq.write_table(pa.Table.from_pylist([_sum(sums, i, split, width) for i in range(rows)]), path)
    return path


def _sum(sums: random.Random, index: int, split: str, width: int) -> dict[str, object]:
    total = min(max(round(sums.lognormvariate(*_SUM_LOG_MEAN_AND_STD)), _SUM_MIN), _SUM_MAX)
    left = sums.randint(1, total - 1)
    return {
        "data_source": "rlinsight/arithmetic",
        "prompt": [{"role": "user", "content": f"{left}+{total - left}=".rjust(width, "0")}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(total)},
        "extra_info": {"index": index, "split": split},
    }


def main(arguments: list[str] | None = None) -> int:
    """Generate the example where the command line says, and print its parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dest", type=Path, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and sums")
    parser.add_argument(
        "--size", choices=example_model.SHAPES, default="tiny", help="parameters of the model"
    )
    parser.add_argument(
        "--mean-length",
        type=float,
        default=MEAN_LENGTH_TOKENS,
        help="mean response length of the untrained model, in tokens",
    )
    options = parser.parse_args(arguments)
    example = generate(
        options.dest,
        seed=options.seed,
        size=options.size,
        mean_length_tokens=options.mean_length,
    )
    sys.stdout.writelines(f"{name:<6} {path}\n" for name, path in vars(example).items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
