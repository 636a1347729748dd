"""One test for a table of cases, where all of them go one way through the code.

`pytest.mark.parametrize` makes a test of each case: a setup, a report and a line of the run for
each row of a table. That is right for cases that need a world of their own. Where a table is only
looked through, `all_cases` makes one test of it. A failure still shows every case that fails, each
with its values, long ones cut, and nothing of what `pytest` says of an assertion is lost.
"""

import functools
import inspect

CASE_CHARS_MAX = 1_000
"""A longer case would hide what its failure says."""


def all_cases(names, cases):
    """Let one test go through all cases; `names` are those of the parameters, as of `parametrize`.

    The other parameters are fixtures, which all cases share.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [case if len(names) > 1 else (case,) for case in cases]
    assert cases, "a test of no case cannot fail"

    def made(test):
        signature = inspect.signature(test)
        fixtures = [one for name, one in signature.parameters.items() if name not in names]

        @functools.wraps(test)
        def of_all(**found):
            failed = []
            for case in cases:
                values = dict(zip(names, case, strict=True))
                try:
                    test(**values, **found)
                except Exception as error:
                    shown = repr(values)
                    cut = f"{shown[:CASE_CHARS_MAX]}…" if len(shown) > CASE_CHARS_MAX else shown
                    error.add_note(f"case: {cut}")
                    failed.append(error)
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases fail", failed)

        of_all.__signature__ = signature.replace(parameters=fixtures)
        return of_all

    return made
