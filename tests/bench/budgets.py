"""The budgets of docs/architecture.md, and what a run of the benchmark says about each."""

from contenders import BWRAP, DROP_IN, LEGACY, MINIMAL, MODERN

# The cost of one bind may differ by this much between 500 and 2000 of them and still be linear:
# quadratic work would make it four times as high.
LINEAR_WITHIN = 1.5


def budgets(results):
    """A list of {what, budget, measured, floor, verdict}; `not measured` where no part answers.

    The floor says whether this host allows the budget at all.
    """
    def of(part, key):
        return lambda name: results.get(part, {}).get("contenders", {}).get(name, {}).get(key)

    overhead = of("launch", "to_bwrap")
    calls, mounts = of("calls", "calls"), of("mounts", "ratio")
    memory = of("memory", "pss")
    return [
        budget("own overhead / bwrap's, modern", 0.45, overhead(MODERN), overhead(MINIMAL)),
        budget("own overhead / bwrap's, legacy", 0.60, overhead(LEGACY), overhead(MINIMAL)),
        budget("own overhead / bwrap's, as bwrap", 0.50, overhead(DROP_IN), overhead(MINIMAL)),
        budget("system calls of a launch, modern", 160, calls(MODERN), calls(MINIMAL)),
        budget("+1000 mounts / own base, modern", 1.6, mounts(MODERN), mounts(MINIMAL)),
        budget("2000 binds, ms, modern", 100, binds(results, MODERN, "median")),
        budget("2000 binds / bwrap's, as bwrap", 0.1, of_bwrap(results, "median")),
        budget("us a bind, 2000 / 500, modern", LINEAR_WITHIN, linearity(results, MODERN)),
        budget("us a bind, 2000 / 500, legacy", LINEAR_WITHIN, linearity(results, LEGACY)),
        budget("PSS of monitor and init, KiB", 200, memory(MODERN), memory(MINIMAL)),
        # Needs the launch service, which keeps a session running.
        budget("command in a session / fork + exec", 2, None),
    ]


def budget(what, limit, measured, floor=None):
    verdict = "not measured" if measured is None else "met" if measured <= limit else "missed"
    return {"what": what, "budget": limit, "measured": measured, "floor": floor,
            "verdict": verdict}


def binds(results, name, key, count=2000):
    rows = results.get("binds", {}).get("rows", [])
    return next((row[key] for row in rows if (row["name"], row["binds"]) == (name, count)), None)


def of_bwrap(results, key):
    ours, theirs = (binds(results, name, key) for name in (DROP_IN, BWRAP))
    return ours / theirs if ours is not None and theirs else None


def linearity(results, name):
    many, few = (binds(results, name, "us_per_bind", count) for count in (2000, 500))
    return many / few if many is not None and few else None
