from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

from triage.examples.build import ExampleError, make_example


class Command(BaseCommand):
    help = "Compile a small JAX program and hand its dump in as the example, unless there is one."

    def handle(self, *args: object, **kwargs: object) -> None:
        try:
            dump = make_example()
        except ExampleError as error:
            raise CommandError(f"The example was not made: {error}. The service works without it.") from None
        if dump is not None:
            self.stdout.write(f"The example was handed in: {dump.get_absolute_url()}")
