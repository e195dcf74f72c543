"""`python -m tests.simulator`: whole jobs in virtual time, under faults that a seed decides."""

from tests.simulator.cli.simulate import command

if __name__ == "__main__":
    command(prog_name="python -m tests.simulator")
