"""What a run found: probabilities, evidences, parameters, doubts, files."""

from ..errors import renamed as _renamed

__getattr__ = _renamed(  # these folders were modules up to version 0.10
    __name__,
    {
        "Result": "trjmcmc.Result",
        "load": "trjmcmc.load",
        "Plan": "trjmcmc.result.report.Plan",
        "RunReport": "trjmcmc.result.report.RunReport",
    },
)
