"""Plain text for people; the numbers for programs are in the JSON file."""


def title(text):
    print(f"\n== {text}")


def note(text):
    print(f"   {text}")


def number(value):
    """A count as it is, a measurement with two decimals, a dash for none."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def print_table(head, rows):
    """Left-aligned names, right-aligned numbers; a long last column of text stays left-aligned."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.ljust(width) if width > 24 else cell.rjust(width)
                  for cell, width in zip(row[1:], widths[1:])]
        print(("   " + "  ".join(cells)).rstrip())


def print_budgets(budgets):
    print_table(["what", "budget", "measured", "floor", "verdict"],
                [[budget["what"], f"<= {budget['budget']}", number(budget["measured"]),
                  number(budget["floor"]), budget["verdict"]] for budget in budgets])
