"""`scalerl-mini eval`: how good is this model at this task?"""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="eval", short_help="Ask a run's checkpoint or any model: mean, pass@k, errors, by level.")
@click.argument("model", metavar="RUN_OR_MODEL")
@click.option(
    "--task", "tasks", multiple=True, metavar="NAME", help="What to ask; may be repeated [default: the run's]."
)
@click.option("--options", multiple=True, metavar="TABLE", help="Options of each --task, e.g. '{path=\"data.jsonl\"}'.")
@click.option(
    "--samples", type=click.IntRange(min=1), help="Completions a prompt [default: the run's, or the largest k]."
)
@click.option(
    "--k", "ks", metavar="K,K", help="pass@k to estimate [default: 1, 4, 16 as far as sampled, and --samples]."
)
@click.option("--prompts", type=click.IntRange(min=1), help="At most so many held-out prompts of each task.")
@click.option("--temperature", type=float, help="Sampling temperature [default: the run's].")
@click.option("--max-new-tokens", type=int, help="Hard limit of a completion [default: the run's; 1024].")
@click.option("--checkpoint", metavar="STEP", help="Checkpoint of a run: a step, 0 for its start model, or latest.")
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="Configuration for a model that is no run."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key, e.g. rollout.slots=64.")
@click.option("--engine", type=click.Choice(["torch", "vllm"]), help="Generation engine.")
@click.option("--device", help="Device, e.g. cuda:0.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the samples [default: the run's].")
@click.option("--json", "json_path", metavar="FILE", help="Write one JSON object; - prints it in the table's place.")
def command(
    model: str,
    tasks: tuple[str, ...],
    options: tuple[str, ...],
    samples: int | None,
    ks: str | None,
    prompts: int | None,
    temperature: float | None,
    max_new_tokens: int | None,
    checkpoint: str | None,
    config_path: Path | None,
    settings: tuple[str, ...],
    engine: str | None,
    device: str | None,
    seed: int | None,
    json_path: str | None,
) -> None:
    """Ask a run's checkpoint, or any model, held-out prompts: mean reward, pass@k, their errors, and the same by level.

    Task, limits, interruption and seed are those of the run, so its last evaluation is met again. A model that is no run
    needs --task, or --config.

    Example: scalerl-mini eval runs/first --samples 16 --k 1,4,16
    """
    import json

    from scalerl_mini.evaluating.measures import choose_ks
    from scalerl_mini.evaluating.output import STDOUT, check_writable, progress_bar, stdout_kept, write_json
    from scalerl_mini.evaluating.questions import check_questions, find_questions
    from scalerl_mini.evaluating.report import as_json, table
    from scalerl_mini.evaluating.subject import find_subject

    shortcuts = {
        "rollout.temperature": temperature,
        "rollout.max_new_tokens": max_new_tokens,
        "rollout.engine": engine,
        "runtime.generator_device": device,
        "seed": seed,
    }
    settings += tuple(f"{key}={value}" for key, value in shortcuts.items() if value is not None)
    subject = find_subject(model, checkpoint, config_path, settings)
    samples, chosen = choose_ks(ks, samples, subject.config.evaluation.samples)
    check_writable(json_path)
    with stdout_kept():
        questions = find_questions(subject, tasks, options, prompts)
        check_questions(subject, questions)
        from scalerl_mini.evaluating.running import evaluate

        with progress_bar() as progress:
            found = evaluate(subject, questions, samples, chosen, progress)
    if json_path == STDOUT:
        click.echo(json.dumps(as_json(found)))
        return
    click.echo(table(found), nl=False)
    if json_path:
        write_json(Path(json_path), as_json(found))
