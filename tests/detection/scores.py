"""Finding one score among many."""


def by(made, convention, group="all", category="all"):
    (found,) = [
        each
        for each in made
        if (each.convention, each.group, each.category) == (convention, group, category)
    ]
    return found
